"""Every way into the log of a topic against every property of a topic, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.domain.errors import QuotaExceeded
from tests.fixtures.application import Application
from tests.fixtures.broker import Json, Rest, message
from tests.fixtures.entry_points import AVRO, ENTRY_POINTS, SCHEMA, EntryPoint, Result, World
from tests.fixtures.in_process import running_in_process

pytestmark = pytest.mark.one_server("it is about rules, which are the same where tables are distributed")

Change = Callable[[World, str], Awaitable[Any]]
Effect = Callable[[World, str, list[Any]], bool]
_OF_ANOTHER_SCHEMA = "schema attributes of another topic"
APPLIES = "applies"  # the property shows in what is stored


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A property that a topic is given, and messages for which it matters.

    `shows`: whether what is new in the log shows the property; None: it can do nothing but refuse, or hold up.
    `source`: the fields of a topic that the messages come from.
    """

    messages: Sequence[Json] = field(default_factory=lambda: [message("m")])
    on: Change | None = None
    off: Change | None = None
    shows: Effect | None = None
    source: Json | None = None


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
    "message limits": Probe(messages=[_with("a", "x" * 1025)]),
    _OF_ANOTHER_SCHEMA: Probe(messages=[message('{"n": 1}')], source={"schemaSettings": SCHEMA}),
    "1,001 messages": Probe(messages=[message(str(n)) for n in range(1001)]),
    "several keys": Probe(messages=[message("m", orderingKey="a"), message("m", orderingKey="b")]),
    "10 MB": Probe(messages=[message("x" * 3_600_000, {"a": str(n)}, orderingKey=f"{n}") for n in range(3)]),
    "schema": Probe(on=_patched(schemaSettings=SCHEMA)),
    "schema attributes": Probe(
        messages=[message('{"n": 1}')],
        on=_patched(schemaSettings=SCHEMA),
        shows=_has("googclient_schemaencoding"),
    ),
    "transforms": Probe(on=_TRANSFORMS, shows=_has("mark")),
    "delay": Probe(messages=[_with("broker-delay", "3600s")], on=_extended(delay=True), shows=_waits),
    "wrong delay": Probe(messages=[_with("broker-delay", "soon")], on=_extended(delay=True)),
    "expiry": Probe(
        messages=[_with("broker-ttl", "60s")],
        on=_extended(expiry=True),
        shows=lambda world, topic, new: new[0].expires_at is not None,
    ),
    "wrong expiry": Probe(messages=[_with("broker-ttl", "soon")], on=_extended(expiry=True)),
    "priority": Probe(
        messages=[_with("broker-priority", "0")],
        on=_PRIORITIES,
        shows=lambda world, topic, new: new[0].level == 0,
    ),
    "wrong priority": Probe(messages=[_with("broker-priority", "7")], on=_PRIORITIES),
    "priority of a key": Probe(messages=[_with("broker-priority", "0", orderingKey="k")], on=_PRIORITIES),
    "deduplication": Probe(
        messages=[_with("broker-dedup-id", "one")] * 2,
        on=_DEDUPLICATION,
        shows=lambda world, topic, new: len(new) == 1,
    ),
    "wrong identity": Probe(messages=[_with("broker-dedup-id", "x" * 257)], on=_DEDUPLICATION),
    "ordering key": Probe(messages=[message("m", orderingKey="key")] * 2, shows=_is_with_its_key),
    "quotas": Probe(on=_limited(publishRequests=0), off=_limited(publishRequests=None)),
    "charge": Probe(
        messages=[message("m" * 1000)],
        on=_limited(publishBytes=1),
        off=_limited(publishBytes=None),
        shows=_is_charged,
    ),
    "retained bytes": Probe(on=_limited(retainedBytes=1), off=_limited(retainedBytes=None)),
    "freeze": Probe(on=_freeze, off=_unfreeze),
    "storage": Probe(on=_fill_disk, off=_free_disk),
}


_TABLE = """
                                   | publish  replace  schedule SQL      outbox   import   copy     redrive  edit
message limits                     | refused  refused  refused  refused  refused  refused  -        -        refused
schema attributes of another topic | -        -        -        -        -        -        refused  refused  -
1,001 messages                     | refused  -        -        stored   stored   refused  stored   stored   -
several keys                       | refused  -        -        stored   stored   stored   stored   stored   -
10 MB                              | refused  -        -        stored   stored   refused  stored   stored   -
schema                             | refused  refused  refused  refused  refused  refused  refused  refused  stored
schema attributes                  | applies  applies  applies  refused  refused  applies  applies  applies  stored
transforms                         | applies  applies  applies  refused  refused  refused  refused  refused  stored
delay                              | applies  applies  stored   applies  applies  stored   stored   stored   stored
wrong delay                        | refused  refused  stored   refused  refused  stored   stored   stored   stored
expiry                             | applies  applies  applies  applies  applies  stored   stored   stored   stored
wrong expiry                       | refused  refused  refused  refused  refused  stored   stored   stored   stored
priority                           | applies  applies  applies  applies  applies  applies  applies  applies  stored
wrong priority                     | refused  refused  refused  refused  refused  stored   stored   stored   stored
priority of a key                  | refused  refused  refused  refused  refused  stored   stored   stored   stored
deduplication                      | applies  stored   stored   applies  applies  stored   stored   stored   stored
wrong identity                     | refused  refused  stored   refused  refused  stored   stored   stored   stored
ordering key                       | applies  applies  applies  applies  applies  applies  applies  applies  stored
quotas                             | refused  refused  refused  stored   stored   refused  waits    waits    stored
charge                             | applies  applies  applies  applies  applies  applies  applies  applies  stored
retained bytes                     | refused  refused  refused  stored   stored   refused  waits    waits    stored
freeze                             | refused  refused  refused  refused  waits    refused  waits    waits    stored
storage                            | refused  refused  refused  waits    waits    refused  waits    waits    refused
"""


def _read_table() -> dict[str, dict[str, str]]:
    """What each probe finds, by the names of the entry points; "-": messages cannot be so."""
    first, *rows = [line.partition("|") for line in _TABLE.strip("\n").splitlines()]
    names = first[2].split()
    return {probe.strip(): dict(zip(names, words.split(), strict=True)) for probe, _, words in rows}


EXPECTED = _read_table()


@pytest.fixture
async def world(
    database_url: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """With a schema, topics of three shards, dead letters after one attempt, and operations that soon try again."""
    monkeypatch.setattr("broker.workers.operations.runner._MOST_DOUBLINGS", 1)
    config = AppConfig(
        database_url=database_url, min_delivery_attempts=1, dead_letter_interval_seconds=0.05, shards_per_topic=3
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
    if name in ("1,001 messages", "several keys", "10 MB"):
        return entry_point.takes_many
    return (
        entry_point.has_source
        if name == _OF_ANOTHER_SCHEMA
        else name != "message limits" or not entry_point.has_source
    )


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda each: each.name)
async def test_each_property_of_a_topic_does_what_the_table_says(
    world: World, entry_point: type[EntryPoint]
) -> None:
    entries: dict[str, EntryPoint] = {}
    for number, (name, probe) in enumerate(PROBES.items()):
        if _is_possible(entry_point, name):
            await world.rest.create_topic(f"topic-{number}")
            entries[name] = entry_point(world, f"topic-{number}", probe.messages, source=probe.source)
    await asyncio.gather(*(entry.prepare() for entry in entries.values()))
    found = {name: await _outcome(entry, PROBES[name]) for name, entry in entries.items()}
    assert found == {name: EXPECTED[name][entry_point.name] for name in found}
