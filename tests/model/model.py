"""What Pub/Sub promises, in plain Python: the yardstick of the broker (docs of Google's service; A3-A10).

A topic is a list of messages.  A subscription knows how it stands with each message that its filter matches:
waiting, out under an ack id until a deadline, or acked.  Time is an attribute that the test moves.

Some promises leave a choice (may a late call still succeed; is a message that nobody would deliver any more still
there).  The model then says "either", and takes over what the broker chose.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from tests.model import ordering

REPEATS_KNOWN = timedelta(minutes=10)  # on every topic
MAX_ATTEMPTS = 5  # of every dead-letter policy here
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
SNAPSHOT_LIFE, SHORTEST_SNAPSHOT_LIFE = timedelta(days=7), timedelta(hours=1)


class Verdict(Enum):
    """What becomes of one ack id in a call."""

    TAKES_EFFECT = "takes effect"
    DONE = "was acked by it already"
    STALE = "stale"
    EARLY = "before its turn in an ordering key"
    EITHER = "either"


@dataclass(eq=False)
class Message:
    """`message_id` is None while it is not known: of a dead letter, of what a transaction published; `doubtful`: it
    may not exist.  From `expires_at` on (None: never) nobody is handed it.
    """

    text: str
    attributes: Mapping[str, str]
    key: str
    publish_time: datetime
    message_id: str | None = None
    doubtful: bool = False
    retracted: bool = False
    number: int = 0  # its place in the topic's log
    expires_at: datetime | None = None
    source: "Message | None" = None  # of a dead letter: the message whose body it has

    def __repr__(self) -> str:
        return self.text


@dataclass(eq=False)
class Scheduled:
    """A message that is to come later, and what became of it."""

    message: Message
    due: datetime
    came: bool = False
    cancelled: bool = False

    @property
    def waits(self) -> bool:
        return not self.came and not self.cancelled

    @property
    def turn(self) -> tuple[datetime, int]:
        return self.due, int(self.message.message_id or 0) % 10**15


@dataclass(eq=False)
class Topic:
    name: str
    retention: timedelta | None = None
    log: list[Message] = field(default_factory=list)
    deleted: bool = False
    scheduled: list[Scheduled] = field(default_factory=list)
    named: dict[tuple[str, str], tuple[str, datetime]] = field(
        default_factory=dict
    )  # by name and key: id, and when

    def repeated(self, name: str, key: str, now: datetime) -> str | None:
        """The id of the first one, if a message of that name is a repeat."""
        id_, at = self.named.get((name, key), (None, now))
        return id_ if now - at < REPEATS_KNOWN else None

    def waiting(self) -> list[Scheduled]:
        """The first due first."""
        return sorted((each for each in self.scheduled if each.waits), key=lambda each: each.turn)


@dataclass(frozen=True)
class Filter:
    text: str
    matches: Callable[[Mapping[str, str]], bool]

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of a subscription.  `retry`: minimum and maximum backoff in seconds."""

    filter: Filter | None = None
    ack_deadline: int = 10
    retention: timedelta = timedelta(days=7)
    retain_acked: bool = False
    retry: tuple[int, int] | None = None
    dead_letter_topic: str | None = None
    exactly_once: bool = False
    ordered: bool = False


@dataclass(eq=False)
class Standing:
    """How a subscription stands with a message.

    `due`: an out message's ack deadline, or when a waiting one may be delivered; `sure` is False if it may as well
    be acked.  `repeat_until`: so long an ack that succeeded succeeds again (exactly-once).  `ended`: what the
    record of deliveries says of one that is acked, and since when (None: several things may be true).
    """

    message: Message
    due: datetime
    attempts: int = 0
    out: bool = False
    ack_id: str | None = None
    acked: bool = False
    repeat_until: datetime | None = None
    early: bool = False  # acked, but an earlier message of its ordering key is not
    sure: bool = True
    ended: str | None = None
    ended_at: datetime | None = None
    acked_at: datetime | None = None  # by its ack id, for the last time

    def __repr__(self) -> str:
        return repr(self.message)

    def renew(self, now: datetime, *, sure: bool = True) -> None:
        """Unacked, never delivered."""
        self.due, self.attempts, self.out, self.ack_id = now, 0, False, None
        self.acked, self.early, self.repeat_until = False, False, None
        self.sure = sure and not self.message.doubtful
        self.ended = None

    def settle(self, ended: str | None = None, at: datetime | None = None) -> None:
        """Acked, by something else than its ack id."""
        if not self.acked:
            self.ended, self.ended_at = ended if self.sure else None, at
        self.acked, self.out, self.early, self.ack_id, self.repeat_until = True, False, False, None, None


@dataclass(eq=False)
class Snapshot:
    """`holds` what was unacked (False: perhaps), and of the topic's log all from `first` on."""

    name: str
    topic: Topic
    holds: dict[Message, bool]
    first: int
    expire_time: datetime


class Subscription:
    def __init__(self, name: str, topic: Topic, options: Options, now: datetime) -> None:
        self.name = name
        self.topic = topic
        self.options = options
        self.created = now
        self.dead_letter_topic = options.dead_letter_topic
        self.standings: dict[Message, Standing] = {}
        self.ack_ids: dict[str, Standing] = {}  # all that it ever gave out
        self.sought: set[str] = set()  # those from before a seek
        self.sought_at: set[datetime] = set()
        self.detached = False
        # Filters that it had before, each for messages of the topic's log before a number.
        self.earlier_filters: list[tuple[int, Filter | None]] = []
        # Whether the broker knows for sure if there is a dead-letter topic (it may be late to notice a change).
        self.dead_letter_topic_changed = False
        # Messages that the broker may keep back until the forwarder has looked: their policy was removed.
        self.given_up: set[Standing] = set()

    def matches(self, message: Message) -> bool:
        if message.retracted:
            return False
        earlier = (filter_ for until, filter_ in self.earlier_filters if message.number < until)
        decides = next(earlier, self.options.filter)
        return decides is None or decides.matches(message.attributes)

    def set_filter(self, wanted: Filter | None) -> None:
        if wanted is not self.options.filter:
            self.earlier_filters.append((len(self.topic.log), self.options.filter))
            self.options = replace(self.options, filter=wanted)

    def offer(self, message: Message, now: datetime) -> None:
        """A message has been published to the topic."""
        if not self.detached and self.matches(message):
            self.standings[message] = Standing(message, now, sure=not message.doubtful)

    # --- time --------------------------------------------------------------------------------------------

    @property
    def retention(self) -> timedelta:
        topic = None if self.topic.deleted else self.topic.retention
        return max(self.options.retention, topic or timedelta())

    def kept(self, message: Message, now: datetime) -> bool:
        """Whether it is not too old."""
        return message.publish_time >= now - self.retention

    def retained(self, message: Message, now: datetime) -> bool:
        """And not past its own time."""
        return self.kept(message, now) and (message.expires_at is None or now < message.expires_at)

    def delay(self, failures: int, jitter: float) -> timedelta:
        if self.options.retry is None or not failures:
            return timedelta()
        minimum, maximum = self.options.retry
        doublings = failures - 1
        return min(maximum, minimum << doublings) * (1 + jitter) * SECOND

    def ready_at(self, standing: Standing, jitter: float) -> datetime:
        """When an unacked message may be delivered (again)."""
        return standing.due + self.delay(standing.attempts, jitter) if standing.out else standing.due

    def unacked(self) -> Iterator[Standing]:
        return (standing for standing in self.standings.values() if not standing.acked)

    def used_up(self, standing: Standing) -> bool:
        return self.dead_letter_topic is not None and standing.attempts >= MAX_ATTEMPTS

    # --- delivery ----------------------------------------------------------------------------------------

    def deliver(self, standing: Standing, ack_id: str, now: datetime) -> None:
        standing.attempts += 1
        standing.sure = True
        standing.out, standing.due = True, now + self.options.ack_deadline * SECOND
        standing.ack_id = ack_id
        self.ack_ids[ack_id] = standing

    # --- acks and deadlines ------------------------------------------------------------------------------

    def ack_verdicts(self, ack_ids: Iterable[str], now: datetime) -> dict[str, Verdict]:
        verdicts = {ack_id: self._ack_verdict(ack_id, now) for ack_id in ack_ids}
        valid = [ack_id for ack_id, verdict in verdicts.items() if verdict is Verdict.TAKES_EFFECT]
        for ack_id in valid:
            standing = self.ack_ids[ack_id]
            if ordering.keyed(self, standing.message) and ordering.is_early(self, standing, valid, now):
                verdicts[ack_id] = Verdict.EARLY
        return verdicts

    def _ack_verdict(self, ack_id: str, now: datetime) -> Verdict:
        standing = self.ack_ids[ack_id]
        if self.detached or standing.message.retracted or (ack_id in self.sought and standing.acked):
            return Verdict.EITHER
        if standing.ack_id != ack_id:
            return Verdict.STALE
        if standing.repeat_until is not None:
            return Verdict.DONE if now < standing.repeat_until else Verdict.EITHER
        if standing.acked:
            return Verdict.DONE
        return self._lease_verdict(standing, now)

    def deadline_verdicts(self, ack_ids: Iterable[str], now: datetime) -> dict[str, Verdict]:
        return {ack_id: self._deadline_verdict(ack_id, now) for ack_id in ack_ids}

    def _deadline_verdict(self, ack_id: str, now: datetime) -> Verdict:
        standing = self.ack_ids[ack_id]
        if self.detached or standing.message.retracted:
            return Verdict.EITHER
        if standing.ack_id != ack_id or standing.acked:
            return Verdict.STALE
        return self._lease_verdict(standing, now)

    def _lease_verdict(self, standing: Standing, now: datetime) -> Verdict:
        """Of the latest ack id of an unacked message: a late call counts, but not with exactly-once delivery."""
        if not self.options.exactly_once:
            return Verdict.TAKES_EFFECT
        if not (standing.out and now < standing.due):
            return Verdict.STALE
        return Verdict.TAKES_EFFECT if self.kept(standing.message, now) else Verdict.EITHER

    def acknowledge(self, ack_id: str, now: datetime) -> None:
        standing = self.ack_ids[ack_id]
        if standing.ack_id != ack_id or standing.acked or self.detached:
            return
        if self.options.exactly_once:
            standing.repeat_until = standing.due
        if ordering.keyed(self, standing.message):
            standing.early = True
            ordering.settle(self, standing.message.key, now)
        else:
            standing.acked = True
            # Acked too late, it may count as acknowledged or as expired.
            standing.ended = "ACKNOWLEDGED" if self.retained(standing.message, now) else None
            standing.ended_at = standing.acked_at = now

    def modify_ack_deadline(self, ack_ids: Iterable[str], seconds: int, now: datetime, jitter: float) -> None:
        named = [self.ack_ids[a] for a in ack_ids if self.ack_ids[a].ack_id == a and not self.ack_ids[a].acked]
        by_key: dict[str, list[Standing]] = {}
        for standing in () if self.detached else named:
            if ordering.keyed(self, standing.message):
                by_key.setdefault(standing.message.key, []).append(standing)
            elif standing.out or not seconds:  # what was nacked stays so
                standing.out = seconds > 0
                standing.due = now + (seconds * SECOND if seconds else self.delay(standing.attempts, jitter))
        for standings in by_key.values():
            ordering.modify_ack_deadline(self, standings, seconds, now, jitter)

    # --- seek --------------------------------------------------------------------------------------------

    def seek_to_time(self, time: datetime, now: datetime) -> None:
        self.sought.update(self.ack_ids)
        self.sought_at.add(now)
        for message in filter(self.matches, self.topic.log):
            standing = self.standings.get(message)
            if message.publish_time < time:
                if standing:
                    # Of a key's messages that waited for an earlier one it is not told that a seek has passed them.
                    is_reported = self.retained(message, now) and not ordering.keyed(self, message)
                    standing.settle("SKIPPED" if is_reported else None, now)
            elif standing and not standing.acked:
                standing.renew(now, sure=standing.sure)
            else:
                self._bring_back(message, standing, now)

    def _bring_back(self, message: Message, standing: Standing | None, now: datetime) -> None:
        """An acked message, or one from before the subscription, after a seek to an earlier time."""
        topic_retention = None if self.topic.deleted else self.topic.retention
        by_topic = topic_retention is not None and message.publish_time >= now - topic_retention
        own = self.options.retain_acked and message.publish_time >= now - self.options.retention
        # What came from a snapshot of another subscription, or in the very millisecond of the creation.
        if standing is None:
            in_doubt = own and message.publish_time == self.created
        else:
            in_doubt = own and message.publish_time <= self.created
        if by_topic or (own and (standing is not None or in_doubt)):
            standing = self.standings.setdefault(message, Standing(message, now))
            standing.renew(now, sure=by_topic or not in_doubt)
        elif standing:
            standing.settle()

    def purgeable(self, chosen: Filter, now: datetime) -> tuple[list[Standing], list[Standing]]:
        """What a purge by a filter drops: for sure, and perhaps."""
        matching = [s for s in self.unacked() if chosen.matches(s.message.attributes)]
        sure = [s for s in matching if s.sure and self.retained(s.message, now)]
        return sure, [s for s in matching if s not in sure]

    def purge(self, chosen: Filter, now: datetime) -> None:
        """Whoever has it just now acks nothing any more."""
        sure, perhaps = self.purgeable(chosen, now)
        self.sought_at.add(now)
        for standing in [*sure, *perhaps]:
            if standing.ack_id is not None:
                self.sought.add(standing.ack_id)
            standing.settle("PURGED" if standing in sure else None, now)

    def seek_to_snapshot(self, snapshot: Snapshot, now: datetime) -> None:
        self.sought.update(self.ack_ids)
        self.sought_at.add(now)
        for index, message in enumerate(self.topic.log):
            if not self.matches(message):
                continue
            if index >= snapshot.first or message in snapshot.holds:
                standing = self.standings.setdefault(message, Standing(message, now))
                standing.renew(now, sure=index >= snapshot.first or snapshot.holds[message])
            elif message in self.standings:
                self.standings[message].settle()

    def snapshot(self, name: str, now: datetime, expire_time: datetime) -> Snapshot:
        holds = {s.message: s.sure and self.retained(s.message, now) for s in self.unacked()}
        # Messages that the filter does not match are acked, but nobody says when.
        holds |= {message: False for message in self.topic.log if not self.matches(message)}
        return Snapshot(name, self.topic, holds, len(self.topic.log), expire_time)


@dataclass
class Model:
    now: datetime
    jitter: float
    topics: dict[str, Topic] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)

    def live_snapshots(self) -> dict[str, Snapshot]:
        return {name: s for name, s in self.snapshots.items() if s.expire_time > self.now}

    def publish(self, topic: Topic, message: Message) -> None:
        message.number = len(topic.log)
        topic.log.append(message)
        for subscription in self.subscriptions.values():
            if subscription.topic is topic:
                subscription.offer(message, self.now)

    def retract(self, message: Message) -> None:
        """Nobody gets it from now on."""
        message.retracted = True
        for subscription in self.subscriptions.values():
            if (standing := subscription.standings.get(message)) is not None:
                standing.settle()
                subscription.given_up.discard(standing)

    def delete_topic(self, name: str) -> None:
        self.topics.pop(name).deleted = True
        self.dead_letter_topic_changed(name)

    def dead_letter_topic_changed(self, name: str) -> None:
        for subscription in self.subscriptions.values():
            if subscription.dead_letter_topic == name:
                subscription.dead_letter_topic_changed = True

    def deliverable(self, subscription: Subscription) -> tuple[set[Message], set[Message]]:
        """What a pull may get now: for sure, and perhaps."""
        sure: set[Message] = set()
        perhaps: set[Message] = set()
        for queue in ordering.queues(subscription).values():
            of_key = ordering.deliverable(subscription, queue, self.now, self.jitter)
            sure, perhaps = sure | of_key[0], perhaps | of_key[1]
        for standing in subscription.unacked():
            message = standing.message
            if ordering.keyed(subscription, message) or not subscription.retained(message, self.now):
                continue
            if subscription.ready_at(standing, self.jitter) > self.now:
                continue
            if standing in subscription.given_up:
                perhaps.add(message)
            elif subscription.used_up(standing):
                if subscription.dead_letter_topic_changed:
                    perhaps.add(message)
            else:
                (sure if standing.sure else perhaps).add(message)
        return sure, perhaps

    def next_delivery_at(self, subscription: Subscription) -> datetime | None:
        """When a message that cannot be delivered now can be, if nothing else happens."""
        times = [
            subscription.ready_at(standing, self.jitter)
            for standing in self._firsts(subscription)
            if standing.sure and subscription.retained(standing.message, self.now)
            if not subscription.used_up(standing)
        ]
        return min((time for time in times if time > self.now), default=None)

    def _firsts(self, subscription: Subscription) -> list[Standing]:
        """Unacked messages that wait for no other one, unless that is past its retention."""
        firsts = [s for s in subscription.unacked() if not ordering.keyed(subscription, s.message)]
        for queue in ordering.queues(subscription).values():
            too_old = [s for s in queue if not subscription.retained(s.message, self.now)]
            firsts += queue[: len(too_old) + 1]
        return firsts

    def dead_letters(self, subscription: Subscription) -> list[Standing]:
        """What a run of the forwarder moves to the dead-letter topic."""
        if subscription.detached or subscription.dead_letter_topic not in self.topics:
            return []
        in_doubt = subscription.dead_letter_topic_changed
        candidates = subscription.unacked() if in_doubt else self._firsts(subscription)
        return [s for s in candidates if subscription.used_up(s) and s.due <= self.now]

    def forward(self, subscription: Subscription, standing: Standing, *, sure: bool) -> None:
        """Publish a dead letter; unless `sure` it may have been dropped, or kept, instead."""
        message = standing.message
        assert subscription.dead_letter_topic is not None
        dead_letter = Message(
            message.text,
            {
                **message.attributes,
                "CloudPubSubDeadLetterSourceDeliveryCount": str(standing.attempts),
                "CloudPubSubDeadLetterSourceSubscription": subscription.name.rpartition("/")[2],
                "CloudPubSubDeadLetterSourceSubscriptionProject": subscription.name.split("/")[1],
                "CloudPubSubDeadLetterSourceTopicPublishTime": message.publish_time.isoformat(
                    timespec="milliseconds"
                ),
                "broker-source-message-id": str(message.message_id),
                "broker-dead-letter-reason": "deadline" if standing.out else "nack",
            },
            message.key,
            self.now,
            doubtful=not sure,
            source=message.source or message,
        )
        if sure:
            standing.settle()
        else:
            standing.sure = False
        self.publish(self.topics[subscription.dead_letter_topic], dead_letter)
