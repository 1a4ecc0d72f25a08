"""Hypothesis makes up what happens to topics and subscriptions; `Both` compares."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.later import Later
from tests.model.model import MILLISECOND, SECOND, Filter, Options, Subscription
from tests.model.running_broker import RunningBroker

TOPICS = ["topic", "other"]
DEAD_LETTER_TOPIC = "dead"
SUBSCRIPTIONS = [f"sub{n}" for n in range(1, 5)]
SNAPSHOTS = ["snap1", "snap2"]
FILTERS = [
    Filter('attributes.colour = "red"', lambda a: a.get("colour") == "red"),
    Filter('attributes.colour != "red"', lambda a: a.get("colour") != "red"),
    Filter("attributes:urgent", lambda a: "urgent" in a),
    Filter('NOT hasPrefix(attributes.colour, "re")', lambda a: not a.get("colour", "").startswith("re")),
    Filter(
        'attributes:urgent OR (attributes.colour = "blue" AND -attributes:urgent)',
        lambda a: "urgent" in a or a.get("colour") == "blue",
    ),
    # Bodies repeat the attributes.
    Filter('body.colour = "red"', lambda a: a.get("colour") == "red"),
    Filter("attributes:colour AND NOT body:urgent", lambda a: "colour" in a and "urgent" not in a),
]
ATTRIBUTES: list[dict[str, str]] = [
    {},
    {"colour": "red"},
    {"colour": "blue"},
    {"colour": "rest", "urgent": ""},
    {"colour": "red", "urgent": "yes"},
]
TEN_MINUTES, HOUR, DAY = timedelta(minutes=10), timedelta(hours=1), timedelta(days=1)

durations = st.one_of(
    st.sampled_from([MILLISECOND, SECOND, 4 * SECOND, 9 * SECOND, 10 * SECOND, 11 * SECOND, 30 * SECOND]),
    st.sampled_from([timedelta(minutes=1), TEN_MINUTES]),
)
long_durations = st.sampled_from([TEN_MINUTES + SECOND, HOUR, DAY, 6 * DAY + 23 * HOUR, 8 * DAY])

NEAR_NOW = [timedelta(), -SECOND, -HOUR, -40 * DAY, MILLISECOND, 10 * SECOND, HOUR]

any_subscription = st.sampled_from(["sub1", "sub2", "sub3", *SUBSCRIPTIONS, "letters"])
choices = st.lists(st.integers(0, 7) | st.integers(0, 7) | st.integers(0, 40), min_size=1, max_size=6)
retries = st.sampled_from([None, None, (0, 0), (2, 600), (4, 8), (10, 600)])
options = st.builds(
    Options,
    filter=st.none() | st.sampled_from(FILTERS),
    ack_deadline=st.sampled_from([10, 10, 10, 60, 600]),
    retention=st.sampled_from([timedelta(days=7), timedelta(days=7), timedelta(minutes=10), timedelta(hours=1)]),
    retain_acked=st.booleans(),
    retry=retries,
    dead_letter_topic=st.sampled_from([None, None, DEAD_LETTER_TOPIC]),
    exactly_once=st.booleans(),
    ordered=st.booleans(),
)
# Nothing that leaves the broker a choice of how much to hand out.
plain_options = st.builds(Options, ack_deadline=st.just(10), retain_acked=st.booleans())


# "look" often: the others end what went before, and a run should get somewhere first.
CHANGES = [
    *["look"] * 5,
    *["create topic"] * 3,
    "remove dead-letter policy",
    "delete snapshot",
    "delete subscription",
    "delete subscription",
    "delete topic",
    "detach",
]


class PubSub(RuleBasedStateMachine):
    """`broker` is shared; each run works in a project of its own."""

    broker: RunningBroker
    replica_reads = 0
    number = 0

    @initialize(
        first=options,
        second=options | plain_options,
        third=options,
        retention=st.sampled_from([None, None, TEN_MINUTES, DAY]),
    )
    def begin(self, first: Options, second: Options, third: Options, retention: timedelta | None) -> None:
        PubSub.number += 1
        self.both = Later(self.broker, f"model-{PubSub.number}")
        self.both.create_topic(DEAD_LETTER_TOPIC)
        self.both.create_topic("topic", retention)
        self.both.create_subscription("sub1", "topic", first)
        self.both.create_subscription("sub2", "topic", second)
        self.both.create_subscription("sub3", "topic", third)
        self.both.create_subscription("letters", DEAD_LETTER_TOPIC)

    @invariant()
    def how_messages_ended_is_on_record(self) -> None:
        """Of two that have ended, others after each step."""
        if not hasattr(self, "both"):
            return
        self.replica_reads += 1
        ended = [
            (s, each) for s in self.both.model.subscriptions.values() for each in s.standings.values() if each.ended
        ]
        for number in range(min(2, len(ended))):
            self.both.compare_end(*ended[(2 * self.replica_reads + number) % len(ended)])

    def teardown(self) -> None:
        if hasattr(self, "both"):
            self.both.drain()
            self.both.delete_everything()
            self.both.tidy()

    # --- publishers and subscribers ----------------------------------------------------------------------

    @rule(
        topic=st.sampled_from([*TOPICS, "topic", "topic"]),
        count=st.integers(1, 5),
        attributes=st.sampled_from(ATTRIBUTES),
        key=st.sampled_from(["", "", "a", "b"]),
    )
    def publish(self, topic: str, count: int, attributes: dict[str, str], key: str) -> None:
        self.both.publish(topic, count, key, **attributes)

    @rule(
        batches=st.lists(
            st.tuples(st.sampled_from(["", "a", "a", "b"]), st.sampled_from(ATTRIBUTES)), min_size=1, max_size=3
        )
    )
    def publish_more(self, batches: list[tuple[str, dict[str, str]]]) -> None:
        for key, attributes in batches:
            self.both.publish("topic", 2, key, **attributes)
            self.both.time_passes(MILLISECOND)

    @rule(
        delays=st.lists(st.sampled_from([0, 1, 1, 5, 60, 600]), min_size=1, max_size=3),
        key=st.sampled_from(["", "", "a", "b"]),
    )
    def publish_later(self, delays: list[int], key: str) -> None:
        self.both.publish_later("topic", delays, key)

    @rule(
        ttls=st.lists(st.sampled_from([1, 4, 10, 30, 60]), min_size=1, max_size=3),
        key=st.sampled_from(["", "", "a", "b"]),
    )
    def publish_expiring(self, ttls: list[int], key: str) -> None:
        self.both.publish_expiring("topic", ttls, key)

    @rule(
        names=st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([0, 0, 0, 5])), min_size=1, max_size=4),
        key=st.sampled_from(["", "", "a"]),
    )
    def publish_named(self, names: list[tuple[str, int]], key: str) -> None:
        self.both.publish_named("topic", names, key)

    @rule(choice=st.integers(0, 8), seconds=st.sampled_from([None, None, 1, 5, 60]))
    def change_scheduled(self, choice: int, seconds: int | None) -> None:
        self.both.change_scheduled("topic", choice, seconds)
        self.both.list_scheduled("topic")

    @rule(choices=choices, replace=st.booleans())
    def retract(self, choices: list[int], replace: bool) -> None:
        if replace:
            self.both.replace("topic", choices[0])
        else:
            self.both.retract("topic", choices)

    @rule(
        count=st.integers(1, 3),
        key=st.sampled_from(["", "a"]),
        name=any_subscription,
        choices=choices,
        commit=st.sampled_from([True, True, False]),
    )
    def transact(self, count: int, key: str, name: str, choices: list[int], commit: bool) -> None:
        self.both.transact("topic", count, key, name, self._chosen(name, choices), commit=commit)

    @rule(name=st.sampled_from(["sub1", "sub2", *SUBSCRIPTIONS, "letters"]), max_messages=st.integers(1, 8))
    def pull(self, name: str, max_messages: int) -> None:
        self.both.pull(name, max_messages)

    @rule(name=st.sampled_from(["sub1", "sub2", "sub3", *SUBSCRIPTIONS]), max_messages=st.integers(1, 8))
    def pull_and_wait(self, name: str, max_messages: int) -> None:
        """Waits only where it need not wait long."""
        subscription = self._subscription(name)
        if subscription and not subscription.detached and self.both.model.deliverable(subscription)[0]:
            self.both.pull(name, max_messages, wait=True)

    @rule(name=st.sampled_from(SUBSCRIPTIONS), publish=st.booleans())
    def pull_while(self, name: str, publish: bool) -> None:
        subscription = self._subscription(name)
        if subscription is None or subscription.detached:
            return
        if self.both.model.deliverable(subscription) != (set(), set()):
            return
        due = self.both.model.next_delivery_at(subscription)
        message = next(
            a for a in ATTRIBUTES if not subscription.options.filter or subscription.options.filter.matches(a)
        )
        if publish and not subscription.topic.deleted:
            topic = subscription.topic.name.rpartition("/")[2]
            self.both.pull_while(name, lambda: self.both.publish(topic, 1, "", **message))
        elif due and due - self.both.model.now < TEN_MINUTES:
            wait = due - self.both.model.now
            if any(
                subscription.retained(s.message, due) and subscription.ready_at(s, self.both.model.jitter) == due
                for s in subscription.unacked()
            ):
                self.both.pull_while(name, lambda: self.both.time_passes(wait))

    def _subscription(self, name: str) -> Subscription | None:
        return self.both.model.subscriptions.get(f"projects/{self.both.project}/subscriptions/{name}")

    def _ack_ids(self, name: str) -> list[str]:
        subscription = self._subscription(name)
        return list(subscription.ack_ids) if subscription else []

    def _chosen(self, name: str, choices: list[int]) -> list[str]:
        """Some of its ack ids, from the latest on: what is drawn may not depend on what the broker answered."""
        ack_ids = self._ack_ids(name)[::-1]
        return [ack_ids[choice % len(ack_ids)] for choice in choices] if ack_ids else []

    @rule(name=any_subscription, choices=choices, twice=st.booleans())
    def acknowledge(self, name: str, choices: list[int], twice: bool) -> None:
        for _ in range(1 + twice):
            if ack_ids := self._chosen(name, choices):
                self.both.acknowledge(name, ack_ids)

    @rule(name=any_subscription, choices=choices)
    def nack(self, name: str, choices: list[int]) -> None:
        if ack_ids := self._chosen(name, choices):
            self.both.nack(name, ack_ids)

    @rule(name=any_subscription, choices=choices, seconds=st.sampled_from([1, 5, 10, 30, 600]))
    def modify_ack_deadline(self, name: str, choices: list[int], seconds: int) -> None:
        if ack_ids := self._chosen(name, choices):
            self.both.modify_ack_deadline(name, ack_ids, seconds)

    @rule(
        name=st.sampled_from(["sub1", "sub2", "sub3", *SUBSCRIPTIONS]),
        max_messages=st.integers(1, 8),
        outcomes=st.lists(st.sampled_from(["ack", "nack", "keep"]), min_size=1, max_size=4),
    )
    def work(self, name: str, max_messages: int, outcomes: list[str]) -> None:
        """As a subscriber does: pull, then settle some of what came."""
        ack_ids = self.both.pull(name, max_messages)
        by_outcome = {
            outcome: [a for n, a in enumerate(ack_ids) if outcomes[n % len(outcomes)] == outcome]
            for outcome in outcomes
        }
        if by_outcome.get("ack"):
            self.both.acknowledge(name, by_outcome["ack"])
        if by_outcome.get("nack"):
            self.both.nack(name, by_outcome["nack"])

    @rule(name=st.sampled_from(["sub1", "sub2", "sub3"]), times=st.integers(1, 6))
    def fail(self, name: str, times: int) -> None:
        """Nack all that can be had, again and again, as a subscriber that is broken does."""
        for _ in range(times):
            ack_ids = self.both.pull(name, 4)
            if not ack_ids:
                break
            self.both.nack(name, ack_ids)

    @rule(name=any_subscription, other=any_subscription, choices=choices)
    def acknowledge_with_a_foreign_id(self, name: str, other: str, choices: list[int]) -> None:
        foreign = self._ack_ids(other)[:1] if other != name else []
        if ack_ids := self._chosen(name, choices):
            self.both.foreign_ack_id(name, ack_ids, *(foreign or ["x"]))

    # --- time and what happens by itself -----------------------------------------------------------------

    @rule(delta=durations)
    def time_passes(self, delta: timedelta) -> None:
        self.both.time_passes(delta)

    @rule(delta=long_durations, rarely=st.integers(0, 3))
    def much_time_passes(self, delta: timedelta, rarely: int) -> None:
        if rarely == 3:
            self.both.time_passes(delta)

    @rule()
    def forward_dead_letters(self) -> None:
        self.both.forward_dead_letters()

    @rule()
    def tidy(self) -> None:
        self.both.tidy()

    # --- seek and snapshots ------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(SUBSCRIPTIONS),
        near_now=st.sampled_from(NEAR_NOW),
        choice=st.none() | st.integers(0, 20),
    )
    def seek_to_time(self, name: str, near_now: timedelta, choice: int | None) -> None:
        """Often to the very time of a message."""
        subscription = self._subscription(name)
        times = [m.publish_time for m in subscription.topic.log][::-1] if subscription else []
        time = self.both.model.now + near_now
        if choice is not None and times:
            time = times[choice % len(times)]
        self.both.seek_to_time(name, time)

    @rule(name=st.sampled_from(SUBSCRIPTIONS), chosen=st.sampled_from(FILTERS))
    def purge(self, name: str, chosen: Filter) -> None:
        """Of an ordered subscription what is out of a key goes another way than a model of acks says."""
        subscription = self._subscription(name)
        if subscription is None or not subscription.options.ordered:
            self.both.purge(name, chosen)

    @rule(
        name=st.sampled_from(["sub1", "sub2", "sub3", *SUBSCRIPTIONS]), wanted=st.none() | st.sampled_from(FILTERS)
    )
    def set_filter(self, name: str, wanted: Filter | None) -> None:
        self.both.set_filter(name, wanted)

    @rule(name=st.sampled_from(SNAPSHOTS), subscription=st.sampled_from(SUBSCRIPTIONS))
    def create_snapshot(self, name: str, subscription: str) -> None:
        self.both.create_snapshot(name, subscription)

    @rule(name=st.sampled_from(SUBSCRIPTIONS), snapshot=st.sampled_from(SNAPSHOTS))
    def seek_to_snapshot(self, name: str, snapshot: str) -> None:
        self.both.seek_to_snapshot(name, snapshot)

    # --- resources ---------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(SUBSCRIPTIONS),
        topic=st.sampled_from([*TOPICS, "topic"]),
        options=options | plain_options,
    )
    def create_subscription(self, name: str, topic: str, options: Options) -> None:
        self.both.create_subscription(name, topic, options)

    @rule(
        change=st.sampled_from(CHANGES),
        subscription=st.sampled_from(SUBSCRIPTIONS),
        topic=st.sampled_from([*TOPICS, DEAD_LETTER_TOPIC]),
        retention=st.sampled_from([None, TEN_MINUTES, DAY]),
    )
    def change_resources(self, change: str, subscription: str, topic: str, retention: timedelta | None) -> None:
        match change:
            case "look":
                self.both.get_subscription(subscription)
                self.both.get_position(subscription)
            case "create topic":
                self.both.create_topic(topic, retention)
            case "remove dead-letter policy":
                self.both.remove_dead_letter_policy(subscription)
            case "delete snapshot":
                self.both.delete_snapshot(SNAPSHOTS[0])
            case "delete subscription":
                self.both.delete_subscription(subscription)
            case "delete topic":
                self.both.delete_topic(topic)
            case "detach":
                self.both.detach_subscription(subscription)
