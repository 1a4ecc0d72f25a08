"""Every way into the log of a topic against every property of a topic, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.domain.database_url import DEFAULT_SCHEMA
from broker.domain.deduplication import Deduplication, identities
from broker.domain.errors import QuotaExceeded
from broker.domain.message import NewMessage
from broker.domain.publishing_rules import RULES, Rule, Rules
from tests.fixtures.application import Application
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.entry_points import AVRO, ENTRY_POINTS, SCHEMA, EntryPoint, Import, Result, Sql, World
from tests.fixtures.in_process import running_in_process
from tests.fixtures.waiting import waiting_sessions

pytestmark = pytest.mark.one_server("it is about rules, which are the same where tables are distributed")

Change = Callable[[World, str], Awaitable[Any]]
Effect = Callable[[World, str, list[Any]], bool]
_OF_ANOTHER_SCHEMA = "schema attributes of another topic"
APPLIES = "applies"  # the property shows in what is stored


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A property that a topic is given, and messages for which it matters.

    `expects`: what becomes of them by the rules of an entry point.  `shows`: whether what is new in the log shows
    the property; None: it can do nothing but refuse, or hold up.  `source`: the fields of a topic that the messages
    come from.
    """

    expects: Callable[[Rules], str]

    messages: Sequence[Json] = field(default_factory=lambda: [message("m")])
    on: Change | None = None
    off: Change | None = None
    shows: Effect | None = None
    source: Json | None = None


def _applied(name: str) -> Callable[[Rules], str]:
    """What a rule says about messages that are right."""
    words = {Rule.IGNORED: Result.STORED, Rule.CHECKED: Result.STORED, Rule.REFUSES: Result.REFUSED}
    return lambda rules: words.get(getattr(rules, name), APPLIES)


def _checked(name: str) -> Callable[[Rules], str]:
    """What a rule says about messages that break it, or that nothing may take."""
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
        world.broker.core.quotas.retains(world.rest.project, 1_000)

    return on


async def _freeze(world: World, topic: str) -> None:
    await world.rest.ok("POST", f"{world.rest.topic(topic)}:freeze")


async def _unfreeze(world: World, topic: str) -> None:
    await world.rest.ok("POST", f"{world.rest.topic(topic)}:unfreeze")


async def _fill_disk(world: World, topic: str) -> None:
    world.fill_disk()


async def _free_disk(world: World, topic: str) -> None:
    world.free_disk()


async def _fill_waiting_room(world: World, topic: str) -> None:
    await _extended(delay=True)(world, topic)
    await world.rest.publish(_with("broker-delay", "3600s"), topic=topic)


async def _turn(world: World, topic: str) -> None:
    """The next shard that a message without an ordering key is spread to is another than that of the empty key."""
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
    quotas = world.broker.core.quotas
    try:
        quotas.publishing(world.rest.project, "").check(quotas.ticks())
    except QuotaExceeded:
        return True
    return False


def _with(name: str, value: str, **fields: Any) -> Json:
    return message("m", {name: value}, **fields)


_PRIORITIES = _extended(priorities=3)
_DEDUPLICATION = _extended(deduplication={"window": "600s"})
_TRANSFORMS = _patched(messageTransforms=[{"fields": {"set": {"attributes.mark": "seen"}}}])

PROBES: Mapping[str, Probe] = {
    "message limits": Probe(expects=_checked("message_limits"), messages=[_with("a", "x" * 1025)]),
    _OF_ANOTHER_SCHEMA: Probe(
        expects=lambda rules: Result.STORED if rules.keeps_schema_attributes else Result.REFUSED,
        messages=[message('{"n": 1}')],
        source={"schemaSettings": SCHEMA},
    ),
    "1,001 messages": Probe(expects=_checked("request_count"), messages=[message(str(n)) for n in range(1001)]),
    "several keys": Probe(
        expects=_checked("one_key"), messages=[message("m", orderingKey="a"), message("m", orderingKey="b")]
    ),
    "10 MB": Probe(
        # In protobuf, of which the limit is; they are a little smaller in JSON.
        expects=_checked("request_size"),
        messages=[message("m", {f"{n:02}": "x" * 1024 for n in range(100)})] * 97,
    ),
    "schema": Probe(expects=_checked("schema"), on=_patched(schemaSettings=SCHEMA)),
    "schema attributes": Probe(
        expects=_applied("schema"),
        messages=[message('{"n": 1}')],
        on=_patched(schemaSettings=SCHEMA),
        shows=_has("googclient_schemaencoding"),
    ),
    "transforms": Probe(expects=_applied("transforms"), on=_TRANSFORMS, shows=_has("mark")),
    "delay": Probe(
        expects=_applied("delay"), messages=[_with("broker-delay", "3600s")], on=_extended(delay=True), shows=_waits
    ),
    "wrong delay": Probe(
        expects=_checked("delay"), messages=[_with("broker-delay", "soon")], on=_extended(delay=True)
    ),
    "expiry": Probe(
        expects=_applied("expiry"),
        messages=[_with("broker-ttl", "60s")],
        on=_extended(expiry=True),
        shows=lambda world, topic, new: new[0].expires_at is not None,
    ),
    "wrong expiry": Probe(
        expects=_checked("expiry"), messages=[_with("broker-ttl", "soon")], on=_extended(expiry=True)
    ),
    "priority": Probe(
        expects=_applied("priority"),
        messages=[_with("broker-priority", "0")],
        on=_PRIORITIES,
        shows=lambda world, topic, new: new[0].level == 0,
    ),
    "wrong priority": Probe(expects=_checked("priority"), messages=[_with("broker-priority", "7")], on=_PRIORITIES),
    "priority of a key": Probe(
        expects=_checked("priority"), messages=[_with("broker-priority", "0", orderingKey="k")], on=_PRIORITIES
    ),
    "deduplication": Probe(
        expects=_applied("deduplication"),
        messages=[_with("broker-dedup-id", "one")] * 2,
        on=_DEDUPLICATION,
        shows=lambda world, topic, new: len(new) == 1,
    ),
    "wrong identity": Probe(
        expects=_checked("deduplication"), messages=[_with("broker-dedup-id", "x" * 257)], on=_DEDUPLICATION
    ),
    "waiting room": Probe(
        expects=lambda rules: Result.REFUSED if rules.waiting_room is Rule.APPLIES else _applied("delay")(rules),
        messages=[_with("broker-delay", "3600s")],
        on=_fill_waiting_room,
        shows=lambda world, topic, new: not new and len(world.waiting(topic)) == 2,
    ),
    "spread": Probe(expects=_applied("spread"), on=_turn, shows=_is_in_another_shard),
    "ordering key": Probe(
        expects=lambda rules: APPLIES, messages=[message("m", orderingKey="key")] * 2, shows=_is_with_its_key
    ),
    "quotas": Probe(expects=_checked("quotas"), on=_limited(publishRequests=0), off=_limited(publishRequests=None)),
    "charge": Probe(
        expects=_applied("charge"),
        messages=[message("m" * 1000)],
        on=_limited(publishBytes=1),
        off=_limited(publishBytes=None),
        shows=_is_charged,
    ),
    "retained bytes": Probe(
        expects=_checked("quotas"), on=_limited(retainedBytes=1), off=_limited(retainedBytes=None)
    ),
    "freeze": Probe(expects=_checked("freeze"), on=_freeze, off=_unfreeze),
    "storage": Probe(expects=_checked("storage"), on=_fill_disk, off=_free_disk),
}


@pytest.fixture
async def world(
    database_url: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """With a schema, topics of three shards, dead letters after one attempt, and operations that soon try again."""
    monkeypatch.setattr("broker.workers.operations.runner._MOST_DOUBLINGS", 1)
    config = AppConfig(
        database_url=database_url,
        min_delivery_attempts=1,
        dead_letter_interval_seconds=0.05,
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
    """What a property does to messages on their way in."""
    world, topic = entry.world, entry.topic
    await entry.begin()
    before = {(row.shard_id, row.seq) for row in world.logged(topic, private=entry.is_private)}
    if probe.on is not None:
        await probe.on(world, topic)
    result = await entry.enter(on_full_disk=probe.on is _fill_disk)
    logged = world.logged(topic, private=entry.is_private)
    new = [row for row in logged if (row.shard_id, row.seq) not in before]
    if result is Result.STORED:
        assert new or world.waiting(topic)
    else:
        assert not new, f"it {result}, and is in the log"
    shows = result is Result.STORED and probe.shows is not None and probe.shows(world, topic, new)
    if probe.off is not None:
        await probe.off(world, topic)
    if result is Result.WAITS:
        assert await entry.result() is Result.STORED, "it comes once nothing holds it up"
    return APPLIES if shows else result


def _is_possible(entry_point: type[EntryPoint], name: str) -> bool:
    """Whether messages can be as a probe has them where they enter."""
    if name == "1,001 messages":  # an import has a bound of its own for a part
        return entry_point.takes_many and not issubclass(entry_point, Import)
    if name in ("several keys", "10 MB"):
        return entry_point.takes_many
    if name in ("ordering key", "spread"):
        return not entry_point.is_private
    if name == "waiting room":  # what an operation publishes is never delayed
        return not entry_point.was_published
    if name == _OF_ANOTHER_SCHEMA:
        return entry_point.may_be_described
    return name != "message limits" or not entry_point.was_published


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda each: each.name)
async def test_each_property_of_a_topic_does_what_the_rules_say(
    world: World, entry_point: type[EntryPoint]
) -> None:
    entries: dict[str, EntryPoint] = {}
    for number, (name, probe) in enumerate(PROBES.items()):
        if _is_possible(entry_point, name):
            await world.rest.create_topic(f"topic-{number}")
            entries[name] = entry_point(world, f"topic-{number}", probe.messages, source=probe.source)
    await asyncio.gather(*(entry.prepare() for entry in entries.values()))
    found = {name: await _outcome(entry, PROBES[name]) for name, entry in entries.items()}
    rules = RULES[entry_point.name]
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
