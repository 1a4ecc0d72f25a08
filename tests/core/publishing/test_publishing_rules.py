"""Every entry point of a topic's log against every property of a topic, on a real broker.

The expected results come from the table of docs/publishing-rules.md, and not from that of the broker, so a wrong
cell of either table fails.  The last test changes each cell of the broker's table to show that.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import RULES, Rule, Rules
from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.deduplication.identity import identities
from broker.model.deduplication import Deduplication
from broker.model.errors import QuotaExceeded
from broker.model.message import NewMessage
from broker.model.publish_property import PublishProperty
from tests.fixtures.application import Application
from tests.fixtures.broker import Json, Rest, eventually, message, repository
from tests.fixtures.entry_points import (
    AVRO,
    ENTRY_POINTS,
    SCHEMA,
    Copy,
    DeadLetter,
    EntryPoint,
    Import,
    Outbox,
    Publish,
    Result,
    Schedule,
    Sql,
    World,
)
from tests.fixtures.in_process import running_in_process
from tests.fixtures.publishing_table import ROWS, read_table
from tests.fixtures.waiting import waiting_sessions

pytestmark = pytest.mark.one_server("it is about rules, which are the same where tables are distributed")

_ANY = [message("m")]

Change = Callable[[World, str], Awaitable[Any]]
Effect = Callable[[World, str, list[Any]], bool]
_PREPARED_AT_ONCE = 4  # each of them asks the broker again and again until it is done
_OF_ANOTHER_SCHEMA, _RESERVED = "attributes of another topic's schema", "reserved attributes"
_SQL_CODES = {"ObjectNotInPrerequisiteState": "FAILED_PRECONDITION"}
APPLIES = "applies"  # the property shows in what is stored


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A property that a topic is given, and messages for which it matters.

    `of`: the field of `Rules`; "": it is in no row of the table.  `expects`: the expected result by the rules of an
    entry point.  `shows`: whether the new messages in the log show the property; None: it can only refuse them, or
    make them wait.  `source`: the fields of a topic that the messages come from.  `says`: the code of a refusal and
    a part of its message.
    """

    of: str
    expects: Callable[[Rules], str]

    says: tuple[str, str] | None = None
    messages: Sequence[Json] = field(default_factory=lambda: _ANY)
    on: Change | None = None
    off: Change | None = None
    shows: Effect | None = None
    source: Json | None = None


def _applied(name: str) -> Callable[[Rules], str]:
    """The result for valid messages."""
    words = {Rule.IGNORED: Result.STORED, Rule.CHECKED: Result.STORED, Rule.REFUSES: Result.REFUSED}
    return lambda rules: words.get(getattr(rules, name), APPLIES)


def _checked(name: str) -> Callable[[Rules], str]:
    """The result for messages that break the rule."""
    words = {Rule.IGNORED: Result.STORED, Rule.LENIENT: Result.STORED, Rule.WAITS: Result.WAITS}
    return lambda rules: words.get(getattr(rules, name), Result.REFUSED)


def _extended(**extensions: Any) -> Change:
    async def on(world: World, topic: str) -> None:
        mask = ",".join(f"extensions.{name}" for name in extensions)
        await world.rest.ok(
            "PATCH", world.rest.topic(topic), {"topic": {"extensions": extensions}, "updateMask": mask}
        )

    return on


def _patched(**fields: Any) -> Change:
    async def on(world: World, topic: str) -> None:
        await world.rest.ok("PATCH", world.rest.topic(topic), {"topic": fields, "updateMask": ",".join(fields)})

    return on


def _limited(**limits: int | None) -> Change:
    async def on(world: World, topic: str) -> None:
        await world.rest.ok("PATCH", f"{world.rest.project}/quotas", {"limits": limits})
        world.broker.core.admission.retains(world.rest.project, 1_000)

    return on


async def _freeze(world: World, topic: str) -> None:
    await world.rest.ok("POST", f"{world.rest.topic(topic)}:freeze")


async def _unfreeze(world: World, topic: str) -> None:
    await world.rest.ok("POST", f"{world.rest.topic(topic)}:unfreeze")


async def _fill_disk(world: World, topic: str) -> None:
    world.fill_disk()


async def _free_disk(world: World, topic: str) -> None:
    world.free_disk()


async def _fill_waiting_capacity(world: World, topic: str) -> None:
    await _extended(delay=True)(world, topic)
    await world.rest.publish(_with("broker-delay", "3600s"), topic=topic)


async def _turn(world: World, topic: str) -> None:
    """Make the next message without an ordering key go to a shard other than that of the empty key."""
    known = await world.broker.core.resources.topic(world.rest.topic(topic))
    at = known.plain_shard_ids.index(known.shard_of(""))
    world.broker.publishing.preparation._choice._choices[known.topic_id] = at, 0


def _is_in_another_shard(world: World, topic: str, new: list[Any]) -> bool:
    known = world.broker.core.resources.known_topic(world.rest.topic(topic))
    assert known is not None
    return {row.shard_id for row in new}.isdisjoint({known.shard_of("")})


def _has(attribute: str) -> Effect:
    return lambda world, topic, new: all(attribute in row.attributes for row in new)


def _waits(world: World, topic: str, new: list[Any]) -> bool:
    return not new and len(world.waiting(topic)) == 1


def _is_with_its_key(world: World, topic: str, new: list[Any]) -> bool:
    known = world.broker.core.resources.known_topic(world.rest.topic(topic))
    assert known is not None
    return [row.shard_id for row in new] == [known.shard_of("key")] * 2


def _is_charged(world: World, topic: str, new: list[Any]) -> bool:
    """A second's worth of the quota is used up for a thousand seconds."""
    quotas = world.broker.core.admission
    try:
        quotas.publishing(world.rest.project, "").check(quotas.ticks())
    except QuotaExceeded:
        return True
    return False


def _with(name: str, value: str, **fields: Any) -> Json:
    return message("m", {name: value}, **fields)


_PRIORITIES = _extended(priorities=3)
_DEDUPLICATION = _extended(deduplication={"window": "600s"})
_numbers = itertools.count()
_TRANSFORMS = _patched(messageTransforms=[{"fields": {"set": {"attributes.mark": "seen"}}}])

PROBES: Mapping[str, Probe] = {
    "message limits": Probe(
        of="message_limits",
        expects=_checked("message_limits"),
        messages=[message("m", {f"{n:03}": "x" for n in range(101)})],
    ),
    "limits of what was published": Probe(
        of="message_limits",
        expects=_checked("message_limits"),
        messages=[message("m", {f"{n:03}": "x" for n in range(100)})],  # the broker adds some
    ),
    _OF_ANOTHER_SCHEMA: Probe(
        of="reserved_attributes",
        expects=_checked("reserved_attributes"),
        messages=[message('{"n": 1}')],
        source={"schemaSettings": SCHEMA},
    ),
    _RESERVED: Probe(
        of="reserved_attributes",
        expects=_checked("reserved_attributes"),
        messages=[message("m", {"googclient_schemaname": "projects/p/schemas/records"})],
    ),
    "1,001 messages": Probe(
        of="request_count", expects=_checked("request_count"), messages=[message(str(n)) for n in range(1001)]
    ),
    "several keys": Probe(
        of="one_key",
        expects=_checked("one_key"),
        messages=[message("m", orderingKey=key) for key in "abcd"],  # so two of them are in one of three shards
    ),
    "10 MB": Probe(
        of="request_size",
        # In protobuf, of which the limit is; they are a little smaller in JSON.
        expects=_checked("request_size"),
        messages=[message("m", {f"{n:02}": "x" * 1024 for n in range(100)})] * 97,
    ),
    "schema": Probe(of="schema", expects=_checked("schema"), on=_patched(schemaSettings=SCHEMA)),
    "schema attributes": Probe(
        of="schema",
        expects=_applied("schema"),
        messages=[message('{"n": 1}')],
        on=_patched(schemaSettings=SCHEMA),
        shows=_has("googclient_schemaencoding"),
    ),
    "transforms": Probe(of="transforms", expects=_applied("transforms"), on=_TRANSFORMS, shows=_has("mark")),
    "delay": Probe(
        of="delay",
        expects=_applied("delay"),
        messages=[_with("broker-delay", "3600s")],
        on=_extended(delay=True),
        shows=_waits,
    ),
    "wrong delay": Probe(
        of="delay", expects=_checked("delay"), messages=[_with("broker-delay", "soon")], on=_extended(delay=True)
    ),
    "expiry": Probe(
        of="expiry",
        expects=_applied("expiry"),
        messages=[_with("broker-ttl", "60s")],
        on=_extended(expiry=True),
        shows=lambda world, topic, new: new[0].expires_at is not None,
    ),
    "wrong expiry": Probe(
        of="expiry", expects=_checked("expiry"), messages=[_with("broker-ttl", "soon")], on=_extended(expiry=True)
    ),
    "priority": Probe(
        of="priority",
        expects=_applied("priority"),
        messages=[_with("broker-priority", "0")],
        on=_PRIORITIES,
        shows=lambda world, topic, new: new[0].level == 0,
    ),
    "wrong priority": Probe(
        of="priority", expects=_checked("priority"), messages=[_with("broker-priority", "7")], on=_PRIORITIES
    ),
    "priority of a key": Probe(
        of="priority",
        expects=_checked("priority"),
        messages=[_with("broker-priority", "0", orderingKey="k")],
        on=_PRIORITIES,
    ),
    "deduplication": Probe(
        of="deduplication",
        expects=_applied("deduplication"),
        messages=[_with("broker-dedup-id", "one")] * 2,
        on=_DEDUPLICATION,
        shows=lambda world, topic, new: len(new) == 1,
    ),
    "wrong identity": Probe(
        of="deduplication",
        expects=_checked("deduplication"),
        messages=[_with("broker-dedup-id", "x" * 257)],
        on=_DEDUPLICATION,
    ),
    "scheduled capacity": Probe(
        of="scheduled_capacity",
        expects=lambda rules: (
            Result.REFUSED if rules.scheduled_capacity is Rule.APPLIES else _applied("delay")(rules)
        ),
        messages=[_with("broker-delay", "3600s")],
        on=_fill_waiting_capacity,
        shows=lambda world, topic, new: not new and len(world.waiting(topic)) == 2,
        says=("RESOURCE_EXHAUSTED", "Too many messages of the topic wait for their time"),
    ),
    "spread": Probe(of="spread", expects=_applied("spread"), on=_turn, shows=_is_in_another_shard),
    "ordering key": Probe(
        of="",
        expects=lambda rules: APPLIES,
        messages=[message("m", orderingKey="key")] * 2,
        shows=_is_with_its_key,
    ),
    "quotas": Probe(
        of="quotas",
        expects=_checked("quotas"),
        on=_limited(publishRequests=0),
        off=_limited(publishRequests=None),
        says=("RESOURCE_EXHAUSTED", "Quota exceeded"),
    ),
    "charge": Probe(
        of="charge",
        expects=_applied("charge"),
        messages=[message("m" * 1000)],
        on=_limited(publishBytes=1),
        off=_limited(publishBytes=None),
        shows=_is_charged,
    ),
    "retained bytes": Probe(
        of="quotas",
        expects=_checked("quotas"),
        on=_limited(retainedBytes=1),
        off=_limited(retainedBytes=None),
    ),
    "freeze": Probe(
        of="freeze",
        expects=_checked("freeze"),
        on=_freeze,
        off=_unfreeze,
        says=("FAILED_PRECONDITION", "Topic is frozen since "),
    ),
    "storage": Probe(
        of="storage",
        expects=_checked("storage"),
        on=_fill_disk,
        off=_free_disk,
        says=("RESOURCE_EXHAUSTED", "Publishing is paused: "),
    ),
}


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, database_url: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A broker with a schema, topics of three shards, and operations that soon try again.

    A message is a dead letter after one attempt, and is forwarded at once except where a test does that itself.
    """
    monkeypatch.setattr("broker.features.operations.runner._MOST_DOUBLINGS", 1)
    monkeypatch.setattr("broker.features.operations.runner._MOST_FAILURES", 2)  # before the log has the reason
    callspec = getattr(request.node, "callspec", None)
    forwards_itself = callspec is not None and callspec.params.get("entry_point") is DeadLetter
    config = AppConfig(
        database_url=database_url,
        min_delivery_attempts=1,
        dead_letter_interval_seconds=600 if forwards_itself else 0.05,
        shards_per_topic=3,
        max_scheduled_messages=1,
    )
    broker = Broker(config)
    async with running_in_process(broker) as client:
        world = World(broker, Rest(client, "projects/p"), application)
        body = {"type": "AVRO", "definition": AVRO}
        await world.rest.ok("POST", "projects/p/schemas", body, params={"schemaId": "records"})
        yield world
        world.close()


async def _outcome(entry: EntryPoint, probe: Probe) -> str:
    """The effect of a property on messages that enter."""
    world, topic = entry.world, entry.topic
    await entry.begin()
    before = {(row.shard_id, row.seq) for row in world.logged(topic, private=entry.is_private)}
    try:
        if probe.on is not None:
            await probe.on(world, topic)
        result = await entry.enter(on_full_disk=probe.on is _fill_disk)
        logged = world.logged(topic, private=entry.is_private)
        new = [row for row in logged if (row.shard_id, row.seq) not in before]
        if result is Result.STORED:
            assert new or world.waiting(topic)
        else:
            assert not new, f"it {result}, and is in the log"
            _check_reason(entry, probe, result)
        await world.broker.core.resources.topic(world.rest.topic(topic))  # it may have been forgotten, as changed
        shows = result is Result.STORED and probe.shows is not None and probe.shows(world, topic, new)
    finally:
        if probe.off is not None:
            await probe.off(world, topic)
    if result is Result.WAITS:
        assert await entry.result() is Result.STORED, "it comes once nothing holds it up"
    return APPLIES if shows else result


def _check_reason(entry: EntryPoint, probe: Probe, result: Result) -> None:
    """Messages may wait without a reason that is told."""
    if probe.says is None or (result is Result.WAITS and not entry.why):
        return
    code, text = probe.says
    assert text in entry.why, entry.why
    reported = entry.why.partition(": ")[0]
    if result is Result.REFUSED:
        assert _SQL_CODES.get(reported, reported) == code, entry.why


def _is_possible(entry_point: type[EntryPoint], name: str) -> bool:
    """Whether a probe's messages can be such, and the property can matter, where they enter."""
    probe = PROBES[name]
    if entry_point.writes_itself:
        return probe.messages is _ANY or probe.of in ("charge", "schema")
    if name == "1,001 messages":  # an import has a bound of its own for a part
        return entry_point.takes_many and not issubclass(entry_point, Import)
    if name in ("several keys", "10 MB"):
        return entry_point.takes_many
    if name in ("ordering key", "spread"):
        return not entry_point.is_private
    if name == "scheduled capacity":  # other operations never delay a message
        return not entry_point.was_published
    if name == _OF_ANOTHER_SCHEMA:
        return entry_point.may_be_described
    if name == _RESERVED:
        return not entry_point.may_be_described
    if name == "limits of what was published":
        return entry_point.was_published
    return name != "message limits" or not entry_point.was_published


async def _outcomes(world: World, entry_point: type[EntryPoint], names: Iterable[str]) -> dict[str, str]:
    """The result of each probe."""
    entries = await _prepared(world, entry_point, names)
    return {name: await _outcome(entry, PROBES[name]) for name, entry in entries.items()}


async def _prepared(world: World, entry_point: type[EntryPoint], names: Iterable[str]) -> dict[str, EntryPoint]:
    entries: dict[str, EntryPoint] = {}
    for name in names:
        topic = f"topic-{next(_numbers)}"
        await world.rest.create_topic(topic)
        entries[name] = entry_point(world, topic, PROBES[name].messages, source=PROBES[name].source)
    few = asyncio.Semaphore(_PREPARED_AT_ONCE)

    async def prepare(entry: EntryPoint) -> None:
        async with few:
            await entry.prepare()

    await asyncio.gather(*map(prepare, entries.values()))
    return entries


def _possible(entry_point: type[EntryPoint], *fields: str) -> list[str]:
    return [
        name
        for name, probe in PROBES.items()
        if _is_possible(entry_point, name) and (not fields or probe.of in fields)
    ]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda each: each.name)
async def test_each_property_of_a_topic_does_what_the_page_says(
    world: World, entry_point: type[EntryPoint]
) -> None:
    found = await _outcomes(world, entry_point, _possible(entry_point))
    rules = read_table()[entry_point.name]
    assert found == {name: PROBES[name].expects(rules) for name in found}


async def test_a_transaction_may_publish_with_and_without_an_identity_to_several_shards(world: World) -> None:
    await world.rest.create_topic()
    await _DEDUPLICATION(world, "topic")
    topic = await world.broker.core.resources.topic(world.rest.topic())
    [digest] = identities(
        [NewMessage(attributes={"broker-dedup-id": "one"})], Deduplication(timedelta(seconds=600))
    )
    assert digest is not None
    key = next(key for key in "abcdefgh" if topic.shard_of(key) != topic.shard_of(digest.hex()))
    entry = Sql(world, "topic", [_with("broker-dedup-id", "one"), message("m", orderingKey=key)])
    assert await entry.enter() is Result.STORED
    assert {row.shard_id for row in world.logged("topic")} == {topic.shard_of(key), topic.shard_of(digest.hex())}


async def test_a_tick_that_repeats_a_message_has_its_id_and_says_so(world: World) -> None:
    await world.rest.create_topic()
    await _DEDUPLICATION(world, "topic")
    path = f"{world.rest.project}/schedules/repeating"
    body = {"topic": world.rest.topic(), "message": _with("broker-dedup-id", "one"), "schedule": "0 3 1 1 *"}
    await world.rest.ok("PUT", path, body)
    first, second = [await world.rest.ok("POST", f"{path}:run") for _ in range(2)]
    assert (second["outcome"], second["messageId"]) == ("PUBLISHED", first["messageId"])
    assert second["reason"] == "It repeats an earlier message, whose id it has: nothing was stored."
    assert "reason" not in first
    assert len(world.logged("topic")) == 1


async def test_an_import_says_what_it_did_about_expiry_where_messages_expire(world: World) -> None:
    rest = world.rest
    await rest.create_topic()

    async def imported(part: int, **params: str) -> Json:
        params = {"importId": "one", "part": str(part), **params}
        return await rest.ok("POST", f"{rest.topic()}:import", params=params, content=f'{{"data": "b{part}=="}}\n')

    assert await imported(1) == {"messageCount": "1"}
    assert await imported(2, expiry="KEEP") == {"messageCount": "1"}
    await _extended(expiry=True)(world, "topic")
    assert await imported(3) == {"messageCount": "1", "expiry": "DROP"}
    assert await imported(4, expiry="KEEP") == {"messageCount": "1", "expiry": "KEEP"}
    assert await imported(4, expiry="KEEP") == {"messageCount": "1", "repeated": True}
    params = {"importId": "one", "part": 5, "expiry": "keep"}
    error = await rest.error("POST", f"{rest.topic()}:import", params=params, content='{"data": "bQ=="}')
    assert error == ("INVALID_ARGUMENT", "expiry must be KEEP or DROP (expiry=keep).")


async def test_an_import_says_what_it_did_about_expiry_when_the_topic_is_changed_meanwhile(world: World) -> None:
    await world.rest.create_topic()
    await _extended(expiry=True)(world, "topic")
    path = f"{world.rest.topic()}:import"
    async with (
        await psycopg.AsyncConnection.connect(world.application.admin_url) as locking,
        await psycopg.AsyncConnection.connect(world.application.admin_url, autocommit=True) as watching,
    ):
        await locking.execute(f"LOCK TABLE {DEFAULT_SCHEMA}.imported_parts IN EXCLUSIVE MODE")
        part = asyncio.create_task(
            world.rest.ok("POST", path, params={"importId": "one", "part": "1"}, content='{"data": "YQ=="}\n')
        )
        await eventually(lambda: waiting_sessions(watching))
        world.broker.core.resources.drop(world.rest.topic())
        await locking.rollback()
        assert await part == {"messageCount": "1", "expiry": "DROP"}


# --- the rules of features, taken out -----------------------------------------------------------------------

_WITH_PROPERTY: Mapping[PublishProperty, str] = {  # a probe of each
    PublishProperty.DEDUPLICATION: "deduplication",
    PublishProperty.TRANSFORMS: "transforms",
    PublishProperty.SCHEMA: "schema attributes",
    PublishProperty.DELAY: "delay",
    PublishProperty.EXPIRY: "expiry",
    PublishProperty.PRIORITY: "priority",
}


async def _apply_nothing(_: Draft, __: Rule) -> None:
    """The rule of a feature that has lost its effect."""


@contextmanager
def _with_rules(world: World, rules: Iterable[PublishRule]) -> Iterator[None]:
    """Run a broker with these rules of features alone."""
    applied = world.broker.publishing.preparation._apply
    before = dict(applied)
    applied.clear()
    applied.update({rule.of: rule.apply for rule in rules})
    try:
        yield
    finally:
        applied.clear()
        applied.update(before)


@pytest.mark.parametrize("entry_point", [Publish, Schedule, Copy, DeadLetter], ids=lambda each: each.name)
async def test_a_broker_without_a_feature_refuses_messages_for_topics_that_need_it(
    world: World, entry_point: type[EntryPoint]
) -> None:
    rules = read_table()[entry_point.name]
    entries = await _prepared(world, entry_point, [*_WITH_PROPERTY.values(), "ordering key"])
    with _with_rules(world, ()):
        assert await _outcome(entries["ordering key"], PROBES["ordering key"]) == APPLIES, "the topic is plain"
    for each, name in _WITH_PROPERTY.items():
        entry, probe = entries[name], PROBES[name]
        assert probe.on is not None
        await entry.begin()
        await probe.on(world, entry.topic)
        with _with_rules(world, ()):
            result = await entry.enter()
        if getattr(rules, each) is Rule.IGNORED:
            assert result is Result.STORED, each
        else:
            assert result is Result.REFUSED, each
            assert entry.why
        if entry_point is Publish:
            assert entry.why == (
                f"FAILED_PRECONDITION: The topic has {each.path}, which this broker does not support, and "
                f"accepts no messages (resource={entry.topic})."
            )


async def test_each_rule_of_a_feature_that_has_no_effect_is_noticed(world: World) -> None:
    expected = read_table()[Publish.name]
    for each in PublishProperty:
        entries = await _prepared(world, Publish, _possible(Publish, each))
        for name, entry in entries.items():
            with _with_rules(world, [PublishRule(other, _apply_nothing) for other in PublishProperty]):
                assert await _is_noticed({name: entry}, expected), name


# --- each cell of the broker's table, changed ---------------------------------------------------------------

_ONE_MESSAGE = "it is one message"
_SMALLER_BODY = "the body of its call, in JSON, cannot hold so large a message"
_NEVER_DELAYED = "its messages are never delayed"
_OWN_MESSAGE = "the broker writes the message, without attributes of extensions and far below the limits"
_BOUNDED = "its batches have at most 1,000 messages, and fewer bytes than a request"

# Changes that have no effect, by entry point: the fields, or one value of a field, and the reason.
EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    "replace": {"request_count": _ONE_MESSAGE, "one_key": _ONE_MESSAGE, "request_size": _SMALLER_BODY},
    "schedule": {"request_count": _ONE_MESSAGE, "one_key": _ONE_MESSAGE, "request_size": _SMALLER_BODY},
    "SQL": {"request_count": _BOUNDED, "request_size": _BOUNDED},
    "outbox": {"request_count": _BOUNDED, "request_size": _BOUNDED},
    "import": {"request_count": "a part has the same bound by itself", "scheduled_capacity": _NEVER_DELAYED},
    "import, KEEP": {"request_count": "a part has the same bound by itself", "scheduled_capacity": _NEVER_DELAYED},
    "copy": {"request_count": _BOUNDED, "request_size": _BOUNDED, "scheduled_capacity": _NEVER_DELAYED},
    "redrive": {
        "message_limits": "the attributes that make a dead letter exceed the limits are removed again",
        "request_count": _BOUNDED,
        "request_size": _BOUNDED,
        "scheduled_capacity": _NEVER_DELAYED,
    },
    "edit": {
        "request_count": _ONE_MESSAGE,
        "one_key": _ONE_MESSAGE,
        "request_size": _SMALLER_BODY,
        "scheduled_capacity": _NEVER_DELAYED,
        "spread": "it goes to the log of a subscription, which has one shard",
    },
    "dead letter": {
        "request_count": _BOUNDED,
        "one_key": "a batch that is refused is forwarded by halves, down to single messages",
        "request_size": _BOUNDED,
        "scheduled_capacity": _NEVER_DELAYED,
        "freeze: no": "the log of a frozen topic refuses them as well, and they wait then too",
    },
    "event": {
        "message_limits": _OWN_MESSAGE,
        "reserved_attributes": _OWN_MESSAGE,
        "request_count": _ONE_MESSAGE,
        "one_key": _ONE_MESSAGE,
        "request_size": _OWN_MESSAGE,
        "delay": _OWN_MESSAGE,
        "scheduled_capacity": _NEVER_DELAYED,
        "expiry": _OWN_MESSAGE,
        "priority": _OWN_MESSAGE,
        "deduplication": _OWN_MESSAGE,
        "freeze: yes": "an event that is refused waits as well",
    },
}

# The rules that the SQL function applies by itself, and what takes them out of it.
_IN_SQL: Mapping[str, tuple[str, str]] = {
    "message_limits": ("PERFORM check_outbox_message(body, attributes, key);", ""),
    "reserved_attributes": ("PERFORM check_outbox_message(body, attributes, key);", ""),
    "schema": ("topic.schema_id IS NOT NULL", "false"),
    "transforms": ("topic.message_transforms IS NOT NULL", "false"),
    "freeze": ("topic.frozen IS NOT NULL", "false"),
}


@contextmanager
def _without_in_sql(world: World, name: str) -> Iterator[None]:
    """Take a rule out of the SQL function."""
    path = repository() / "broker" / "db" / "schema" / "functions" / "write_outbox_message.sql"
    function, (old, new) = path.read_text(), _IN_SQL[name]
    assert old in function
    world.execute(function.replace(old, new))
    try:
        yield
    finally:
        world.execute(function)


@contextmanager
def _changed(rules: Rules, name: str, rule: Rule) -> Iterator[None]:
    before = getattr(rules, name)
    object.__setattr__(rules, name, rule)
    try:
        yield
    finally:
        object.__setattr__(rules, name, before)


async def _is_noticed(entries: Mapping[str, EntryPoint], expected: Rules) -> bool:
    noticed = False
    for name, entry in entries.items():
        try:
            noticed = await _outcome(entry, PROBES[name]) != PROBES[name].expects(expected) or noticed
        except Exception:  # the broker fails in a way that the rule prevents
            noticed = True
        await entry.abandon()
    return noticed


@pytest.mark.slow
@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda each: each.name)
async def test_each_changed_cell_of_the_table_is_noticed(world: World, entry_point: type[EntryPoint]) -> None:
    """Each cell becomes "yes" and "no", if it has another value.

    The cells of SQL are rules of the SQL function, which become "no", and of the relay, as those of the outbox.
    For the relay's own check of limits, the same check is taken out of the function.
    """
    expected, rules = read_table()[entry_point.name], RULES.get(entry_point.name, RULES["outbox"])
    equivalents = EQUIVALENT.get(entry_point.name, {})
    world.patience = 10.0
    counts = Counter[str]()
    missed: list[str] = []
    for name in ROWS.values():
        for rule in (Rule.APPLIES, Rule.IGNORED):
            if rule is getattr(expected, name) or (entry_point is Sql and name in _IN_SQL and rule is Rule.APPLIES):
                continue
            if name in equivalents or f"{name}: {rule}" in equivalents:
                counts["equivalent"] += 1
                continue
            entries = await _prepared(world, entry_point, _possible(entry_point, name))
            with ExitStack() as stack:
                if entry_point is Sql and name in _IN_SQL:
                    stack.enter_context(_without_in_sql(world, name))
                else:
                    stack.enter_context(_changed(rules, name, rule))
                if entry_point is Outbox and name in ("message_limits", "reserved_attributes"):
                    stack.enter_context(_without_in_sql(world, name))
                is_noticed = await _is_noticed(entries, expected)
            counts["noticed" if is_noticed else "missed"] += 1
            if not is_noticed:
                missed.append(f"{name}: {rule}")
    print(f"\nCELLS {entry_point.name}: {dict(counts)}, missed {missed}")
    assert not missed
