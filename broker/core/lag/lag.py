"""How far behind each subscription is, and what limits its delivery (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.backlog.seeking.snapshot import UNDO_FOR
from broker.core.expiration.expiration import RECORD_INTERVAL, RECORD_RESOLUTION
from broker.core.pushing.endpoint_failure import describe_failing_endpoint, describe_failing_message
from broker.model.durations import format_units
from broker.model.pause import Pause
from broker.model.push_state import PushState
from broker.model.subscription import Subscription, unread_dead_letters
from broker.model.timestamps import format_timestamp, whole_milliseconds

# Limits of the rows and messages that are read for one subscription in one shard: a few milliseconds.  Beyond them
# figures are estimates.
MAX_ATTEMPTS = 1_000  # outstanding rows: responses, or ordering keys
MAX_BATCHES = 10_000  # of messages that wait for their ordering keys
MAX_SCANNED = 500  # messages that are compared with the filter
MAX_NEWEST = 100  # of the newest messages that are compared with it, to see whether it matches any
FEW_COMPARED = 20  # if fewer were compared, it means nothing that none of them matches

IDLE_AFTER = timedelta(minutes=3)  # without a consumer, which is then the cause whatever else is wrong
SLOW_AFTER = timedelta(seconds=10)  # the age from which a message counts as delayed


class LagState(StrEnum):
    """The state of a subscription's delivery: the first of these that applies."""

    DETACHED = "DETACHED"
    CAUGHT_UP = "CAUGHT_UP"  # every message is acknowledged
    EXPORT = "EXPORT"  # its messages are for another service, to which this broker exports nothing
    PAUSED = "PAUSED"
    ENDPOINT_FAILING = "ENDPOINT_FAILING"
    WAITING_FOR_SLOTS = "WAITING_FOR_SLOTS"
    NO_CONSUMERS = "NO_CONSUMERS"
    BLOCKED_KEY = "BLOCKED_KEY"
    RETRYING = "RETRYING"
    RECENT = "RECENT"  # every message is younger than SLOW_AFTER
    SLOW_ENDPOINT = "SLOW_ENDPOINT"
    SLOW_CONSUMERS = "SLOW_CONSUMERS"


NOT_SAMPLED = "NOT_SAMPLED"  # in place of a LagState, of a subscription that the lag board has not sampled yet
HEALTHY = frozenset({LagState.CAUGHT_UP, LagState.RECENT})  # nothing is known to be wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """The message that blocks all later ones of its ordering key; it was delivered `attempt_number` times, last at
    `delivered_at`.  `is_out`: the consumer has not nacked it.
    """

    ordering_key: str
    message_id: str
    attempt_number: int
    is_out: bool
    delivered_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The last seek or purge of a subscription, at `at` by `by` ("": not known): it settled so many `messages` that
    had not been acknowledged.
    """

    messages: int
    at: datetime
    by: str
    is_purge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLag:
    """The lag of one subscription in one shard.

    `unclaimed` messages were never delivered (with a filter: `matching` of the first `scanned` match it).
    `claimed` messages were delivered and are not acked, in so many `attempts` (rows): of them `outstanding` are
    within their ack deadline, and `retrying` were nacked.  `held` messages are blocked by an earlier one of their
    ordering key.  Messages have `message_size` bytes.  `head`: the number of messages that were ever published to
    the shard, the last one at `last_publish_time`.  The last seek or purge was at `sought_at`, by `sought_by`, and
    settled so many messages that were `skipped`.  `matched`: the filter is known to match a message; only if
    nothing else shows that, so many of the newest messages are `compared` with it.
    """

    subscription_id: int
    last_active_at: datetime
    head: int = 0
    unclaimed: int = 0
    oldest_unclaimed: datetime | None = None
    scanned: int | None = None
    matching: int | None = None
    attempts: int = 0
    claimed: int = 0
    outstanding: int = 0
    retrying: int = 0
    highest_attempt: int | None = None
    oldest_claimed: datetime | None = None
    held: int = 0
    held_batches: int = 0
    oldest_held: datetime | None = None
    message_size: float = 0.0
    holder: KeyHolder | None = None
    last_publish_time: datetime | None = None
    sought_at: datetime | None = None
    skipped: int = 0
    sought_by: str | None = None
    purged: bool = False
    compared: int = 0
    matched: bool = False

    @property
    def wanted(self) -> int:
        """The messages that were never delivered and match the filter."""
        if self.scanned is None or self.matching is None:
            return self.unclaimed
        if self.scanned < MAX_SCANNED:
            return self.matching
        return round(self.unclaimed * self.matching / self.scanned)

    @property
    def is_estimated(self) -> bool:
        return (
            (self.scanned or 0) >= MAX_SCANNED or self.attempts >= MAX_ATTEMPTS or self.held_batches >= MAX_BATCHES
        )


@dataclass(frozen=True, slots=True)
class Delivering:
    """The endpoint's state (None: not known), and how many clients pull or stream."""

    push_state: PushState | None = None
    readers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag of one subscription.

    `oldest`: when its oldest message that is not acked was published (None: there is none).  `undelivered` messages
    are not acked: `outstanding` of them are with a consumer, within their ack deadline, and `held` are blocked by
    an earlier message of their ordering key.  `undelivered_bytes` is always an estimate, `undelivered` if
    `is_estimated`.  `verdict` explains `state` in a sentence.  `endpoint`: the state of the endpoint if it fails.
    `published`: the number of messages that were ever published to its shards.  `skip`: the last seek or purge, if
    it settled messages.  `unmatched`: the filter matches none of so many newest messages, nothing waits to be
    delivered, and nothing was delivered for a day (0: otherwise, and if there are few messages).
    """

    subscription: Subscription
    state: LagState
    verdict: str
    oldest: datetime | None = None
    undelivered: int = 0
    is_estimated: bool = False
    undelivered_bytes: int = 0
    outstanding: int = 0
    held: int = 0
    holder: KeyHolder | None = None
    endpoint: PushState | None = None
    published: int = 0
    skip: Skip | None = None
    unmatched: int = 0


def lag_of(subscription: Subscription, shards: Sequence[ShardLag], delivering: Delivering, now: datetime) -> Lag:
    """Returns the lag of a subscription, given that of its shards."""
    held = sum(shard.held for shard in shards)
    outstanding = sum(shard.outstanding for shard in shards)
    oldest = [
        time
        for shard in shards
        for time in (shard.oldest_claimed, shard.oldest_unclaimed, shard.oldest_held)
        if time is not None
    ]
    undelivered = sum(shard.wanted + shard.claimed for shard in shards) + held
    holders = [shard.holder for shard in shards if shard.holder is not None]
    holder = min(holders, key=lambda h: h.delivered_at, default=None) if held else None
    state, verdict = _judge(subscription, shards, delivering, holder, min(oldest, default=None), now)
    endpoint = delivering.push_state
    return Lag(
        subscription=subscription,
        state=state,
        verdict=verdict,
        oldest=min(oldest, default=None),
        undelivered=undelivered,
        is_estimated=any(shard.is_estimated for shard in shards),
        undelivered_bytes=round(sum((s.wanted + s.claimed + s.held) * s.message_size for s in shards)),
        outstanding=outstanding,
        held=held,
        holder=holder if state is LagState.BLOCKED_KEY else None,
        endpoint=endpoint.as_of(now) if state is LagState.ENDPOINT_FAILING and endpoint is not None else None,
        published=sum(shard.head for shard in shards),
        skip=last_skip(shards),
        unmatched=unmatched(shards),
    )


def last_skip(shards: Sequence[ShardLag]) -> Skip | None:
    """Returns the last seek or purge of a subscription, if it settled messages."""
    last = max((shard.sought_at for shard in shards if shard.sought_at is not None), default=None)
    of_it = [shard for shard in shards if shard.sought_at == last]
    messages = sum(shard.skipped for shard in of_it)
    if last is None or not messages:
        return None
    by = next((shard.sought_by for shard in of_it if shard.sought_by), "")
    return Skip(messages=messages, at=last, by=by, is_purge=any(shard.purged for shard in of_it))


def unmatched(shards: Sequence[ShardLag]) -> int:
    """Returns how many of the newest messages the filter was compared with, if it is known to match none."""
    compared = sum(shard.compared for shard in shards)
    return compared if compared >= FEW_COMPARED and not any(shard.matched for shard in shards) else 0


def delivery_warnings(subscription: Subscription) -> list[str]:
    """Sentences about what is wrong although it delays nothing."""
    policy = subscription.dead_letter_policy
    if policy is not None and not subscription.dead_letter_topic_id:
        topic = policy.dead_letter_topic
        return [f"Its dead-letter topic {topic} does not exist; what fails is delivered again and again."]
    unread = unread_dead_letters(subscription)
    return [f"{unread[0].upper()}{unread[1:]}."] if unread else []


def skip_warning(skip: Skip, now: datetime) -> str:
    """Returns a sentence about messages that a seek or purge settled; "" once it cannot be undone any more."""
    if now - skip.at >= UNDO_FOR:
        return ""
    messages = "1 message is" if skip.messages == 1 else f"{skip.messages:,} messages are"
    what = "dropped" if skip.is_purge else "skipped"
    return f"{messages} not delivered: {_sought(skip)} {what} them. If that was a mistake, undo it or seek back."


def unmatched_warning(messages: int) -> str:
    """Returns a sentence about a filter that matches none of so many messages."""
    return (
        f"Its filter matches none of the newest {messages:,} messages of its topic, and nothing was delivered for "
        "a day. Check the names and values in the filter."
    )


def _judge(
    subscription: Subscription,
    shards: Sequence[ShardLag],
    delivering: Delivering,
    holder: KeyHolder | None,
    oldest: datetime | None,
    now: datetime,
) -> tuple[LagState, str]:
    if subscription.detached:
        return LagState.DETACHED, "It is detached: it receives no messages."
    if oldest is None:
        return LagState.CAUGHT_UP, _caught_up(subscription, shards)
    if subscription.export:
        return (
            LagState.EXPORT,
            f"Its messages are for a {subscription.export}, and this broker exports nothing.",
        )
    if subscription.pause is not None:
        return LagState.PAUSED, _paused(subscription.pause, is_push=subscription.is_push)
    stopped = (
        endpoint_verdict(delivering.push_state, now)
        if subscription.is_push
        else _idle(shards, delivering.readers, now)
    )
    if stopped is not None:
        return stopped
    retrying, tries = sum(shard.retrying for shard in shards), max(shard.highest_attempt or 0 for shard in shards)
    if holder is not None and (holder.attempt_number > 1 or now - holder.delivered_at > SLOW_AFTER):
        return LagState.BLOCKED_KEY, _blocked(holder, sum(shard.held for shard in shards))
    claimed = sum(shard.claimed for shard in shards)
    waiting = sum(shard.wanted for shard in shards)
    if retrying and retrying == claimed + waiting:
        return LagState.RETRYING, _all_failed(retrying, tries) + _longest_failing(delivering.push_state)
    age = now - oldest
    if age < SLOW_AFTER:
        return LagState.RECENT, f"All messages are less than {_short(SLOW_AFTER)} old."
    if subscription.is_push and (retrying or tries > 1) and not _is_backlog_old(shards, now):
        return LagState.RETRYING, _retried(retrying, tries) + _longest_failing(delivering.push_state)
    outstanding = sum(shard.outstanding for shard in shards)
    unacked = claimed + waiting + sum(shard.held for shard in shards)
    return _slow(subscription, delivering.readers, unacked=unacked, outstanding=outstanding, age=age)


def _caught_up(subscription: Subscription, shards: Sequence[ShardLag]) -> str:
    """Explains why nothing is left to deliver: not everything need have been delivered."""
    skip = last_skip(shards)
    newest = max((shard.last_publish_time for shard in shards if shard.last_publish_time is not None), default=None)
    since = subscription.created_at
    if skip is None and since is not None and (newest is None or newest < whole_milliseconds(since)):
        return f"Nothing has been published to its topic since it was created at {format_timestamp(since)}."
    which = "Every message that its filter matches" if subscription.filter else "Every message"
    but = ""
    if skip is not None:
        up_to = "up to " if subscription.filter else ""
        did = "dropped" if skip.is_purge else "skipped"
        but = f", except {up_to}{skip.messages:,} that {_sought(skip)} {did}"
    none = unmatched(shards) if subscription.filter else 0
    matches = f" It matches none of the newest {none:,} messages of its topic." if none else ""
    settled = "acknowledged or dead-lettered" if subscription.dead_letter_policy else "acknowledged"
    return f"{which} is {settled}{but}.{matches}"


def _sought(skip: Skip) -> str:
    by = f" by {skip.by}" if skip.by else ""
    return f"a {'purge' if skip.is_purge else 'seek'} at {format_timestamp(skip.at)}{by}"


def _is_backlog_old(shards: Sequence[ShardLag], now: datetime) -> bool:
    """Whether messages that were never delivered have been waiting for longer than is normal."""
    waiting = [shard.oldest_unclaimed for shard in shards if shard.oldest_unclaimed is not None]
    return any(now - publish_time >= SLOW_AFTER for publish_time in waiting)


def _all_failed(messages: int, tries: int) -> str:
    if messages == 1:
        return f"The only message has failed {_times(tries)}, and is redelivered later."
    return f"All {messages:,} messages have failed, up to {_times(tries)}, and are redelivered later."


def _retried(messages: int, tries: int) -> str:
    if messages == 1:
        return f"1 message has failed {_times(tries)}, and is redelivered later; others succeed."
    if messages:
        return (
            f"{messages:,} messages have failed, up to {_times(tries)}, and are redelivered later; others succeed."
        )
    return f"Messages that failed before are being redelivered, up to attempt {tries:,}; others succeed."


def _times(count: int) -> str:
    return "once" if count <= 1 else "twice" if count == 2 else f"{count:,} times"


def _longest_failing(state: PushState | None) -> str:
    """A sentence about the message that has failed longest although the endpoint works, if one was reported."""
    if state is None or not state.failing_messages:
        return ""
    message = state.failing_messages[0]
    since = format_timestamp(message.since)
    return f" Message {message.message_id} since {since}: {describe_failing_message(message)}."


def _slow(
    subscription: Subscription, readers: int, *, unacked: int, outstanding: int, age: timedelta
) -> tuple[LagState, str]:
    """Explains why messages wait although nothing is known to stop them."""
    messages = "1 message is" if unacked == 1 else f"{unacked:,} messages are"
    holds = f", {outstanding:,} of them outstanding" if outstanding else " and none of them is outstanding"
    figures = f"{messages} not acknowledged{holds}; the oldest is {_short(age)} old."
    if subscription.is_push:
        why = "The endpoint cannot keep up" if outstanding else "No request to the endpoint is in progress"
        return LagState.SLOW_ENDPOINT, f"{why}: {figures}"
    if not readers:
        return LagState.NO_CONSUMERS, f"No client is pulling or streaming: {figures}"
    why = "cannot keep up" if outstanding else "has not taken them" if readers == 1 else "have not taken them"
    return LagState.SLOW_CONSUMERS, f"{_clients(readers)} {why}: {figures}"


def endpoint_verdict(state: PushState | None, now: datetime) -> tuple[LagState, str] | None:
    """Returns what stops pushes, and a sentence that explains it; None if nothing does."""
    if state is None:
        return None
    state = state.as_of(now)
    if state.paused_reason:
        return LagState.PAUSED, f"Push delivery is paused: {state.paused_reason}"
    if state.is_failing(now):
        return LagState.ENDPOINT_FAILING, describe_failing_endpoint(state)
    if state.waits_since is not None:
        return LagState.WAITING_FOR_SLOTS, (
            f"Since {format_timestamp(state.waits_since)} other subscriptions have used all push request slots."
        )
    return None


def _paused(pause: Pause, *, is_push: bool) -> str:
    since = f" since {format_timestamp(pause.since)}" if pause.since is not None else ""
    by = f", by {pause.by}" if pause.by else ""
    return f"{'Push delivery' if is_push else 'Delivery'} is paused{since}{by}: {pause.reason}"


def _idle(shards: Sequence[ShardLag], readers: int, now: datetime) -> tuple[LagState, str] | None:
    used = max((shard.last_active_at for shard in shards), default=now)
    if readers or now - used < IDLE_AFTER:
        return None
    # A use is recorded up to RECORD_INTERVAL late, and later uses within RECORD_RESOLUTION are not.
    latest = used + RECORD_RESOLUTION
    if latest < now:
        when = f"none has since {format_timestamp(latest)}"
    else:
        when = f"the last one did after {format_timestamp(used - RECORD_INTERVAL)}"
    return LagState.NO_CONSUMERS, f"No client is pulling or streaming; {when}."


def _clients(count: int) -> str:
    return "The 1 client that pulls or streams" if count == 1 else f"The {count:,} clients that pull or stream"


def _blocked(holder: KeyHolder, held: int) -> str:
    key, times = holder.ordering_key[:100], holder.attempt_number
    since = format_timestamp(holder.delivered_at)
    how = "is outstanding since" if holder.is_out else "failed, and was last delivered at"
    return (
        f"Ordering key {key!r}: message {holder.message_id} {how} {since} (attempt {times}). "
        f"{held:,} later messages are blocked by their keys."
    )


def _short(age: timedelta) -> str:
    return format_units(age, most=2)
