"""What acts on messages whose shards lie on two workers, as those of their dead letters do."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.citus import NEEDS_CITUS
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

pytestmark = NEEDS_CITUS

KEYS = "abcdefgh"  # they lie in all shards
SPREAD = {"shards": 4}
EVER = "2020-01-01T00:00:00Z"
LATER = "2100-01-01T00:00:00Z"


@pytest.fixture
async def rest(distributed_url: str, project: str) -> AsyncIterator[Rest]:
    """One attempt, and a message is a dead letter."""
    config = AppConfig(database_url=distributed_url, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)
    async with running_in_process(Broker(config)) as client:
        yield Rest(client, project)


async def _run(rest: Rest, verb: str, **body: object) -> dict[str, str]:
    """Until it has ended; what became of how many messages."""
    started = await rest.ok("POST", f"{rest.subscription()}:{verb}", body)
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert "error" not in ended, ended
    counts: dict[str, str] = ended["metadata"].get("counts", {})
    return counts


def _keyed(prefix: str = "") -> list[Json]:
    """A message of each key."""
    return [message(f"{prefix}{key}", {"key": key}, orderingKey=key) for key in KEYS]


def _texts(received: list[Json]) -> str:
    return "".join(sorted(text(each) for each in received))


async def _publish(rest: Rest, messages: list[Json]) -> list[str]:
    return [id_ for each in messages for id_ in await rest.publish(each)]


async def _topic(rest: Rest, name: str = "topic", **extensions: Any) -> None:
    await rest.create_topic(name, messageRetentionDuration="3600s", extensions=SPREAD | extensions)


async def _give_up(rest: Rest, distributed_url: str, **fields: Any) -> list[str]:
    """The ids of a message of each key, all of them dead letters of `sub` that `dead-sub` has."""
    await _topic(rest)
    await _topic(rest, "dead")
    await rest.create_subscription("dead-sub", "dead", **fields)
    await rest.create_subscription("bystander")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy, **fields)
    ids = await _publish(rest, _keyed())
    assert len(await rest.drain("bystander")) == len(KEYS)
    await _fail(rest, distributed_url, len(KEYS))
    return ids


async def _fail(rest: Rest, distributed_url: str, count: int) -> None:
    """Nack all, until there are so many dead letters of the project."""

    async def failed() -> bool:
        received = await rest.pull()
        if received:
            await rest.modify_ack_deadline(received, 0)
        query = b"SELECT count(*) FROM broker.dead_letters WHERE subscription = %s"
        async with await psycopg.AsyncConnection.connect(distributed_url) as connection:
            [found] = await (await connection.execute(query, [rest.subscription()])).fetchone() or [0]
        return bool(found == count)

    await eventually(failed)


async def _places(distributed_url: str, table: str) -> int:
    """On how many nodes a table has rows."""
    query = (
        f"SELECT count(DISTINCT nodename || ':' || nodeport) FROM run_command_on_shards('broker.{table}',"
        " 'SELECT count(*) FROM %s') AS s JOIN pg_dist_shard_placement AS p USING (shardid) WHERE result <> '0'"
    )
    async with await psycopg.AsyncConnection.connect(distributed_url, autocommit=True) as connection:
        [count] = await (await connection.execute(query.encode())).fetchone() or [0]
    return int(count)


@pytest.mark.parametrize("ordered", [False, True])
async def test_dead_letters_come_back_to_who_gave_them_up(rest: Rest, distributed_url: str, ordered: bool) -> None:
    ids = await _give_up(rest, distributed_url, enableMessageOrdering=ordered)
    assert await _places(distributed_url, "dead_letters") == 2
    [done] = await rest.pull("dead-sub", 1)
    await rest.acknowledge([done], "dead-sub")
    key = text(done)
    filter_ = "attributes.key = " + " OR attributes.key = ".join(f'"{each}"' for each in "ab" + key)
    chosen = {*"ab"} - {key}
    assert await _run(rest, "redrive", filter=filter_) == {"redriven": str(len(chosen))}
    assert {text(each) for each in await rest.drain()} == chosen
    assert await _run(rest, "redrive") == {"redriven": str(7 - len(chosen))}
    received = await rest.drain()
    assert {text(each) for each in received} == {*KEYS} - chosen - {key}
    assert {each["message"]["messageId"] for each in received} <= {*ids}
    assert await rest.drain("dead-sub") == await rest.drain("bystander") == []


async def test_messages_that_the_log_has_no_more_are_made_of_their_dead_letters(
    rest: Rest, distributed_url: str
) -> None:
    """Which lie on the other node, some of them."""
    ids = await _give_up(rest, distributed_url)
    forget = b"DELETE FROM broker.message_batches WHERE shard_id = %s"
    async with await psycopg.AsyncConnection.connect(distributed_url, autocommit=True) as connection:
        rows = await connection.execute(
            b"SELECT DISTINCT source_shard_id FROM broker.dead_letters WHERE subscription = %s",
            [rest.subscription()],
        )
        for shard in await rows.fetchall():
            await connection.execute(forget, shard)
    assert await _run(rest, "redrive") == {"redriven": "8"}
    received = await rest.drain()
    assert {each["message"]["messageId"]: text(each) for each in received} == dict(zip(ids, KEYS, strict=True))
    assert all(each["message"]["attributes"] == {"key": text(each)} for each in received)
    assert await rest.drain("dead-sub") == []


async def test_dead_letters_are_sent_to_a_topic(rest: Rest, distributed_url: str) -> None:
    await _give_up(rest, distributed_url)
    await _topic(rest, "mended")
    await rest.create_subscription("mended", "mended")
    assert await _run(rest, "redrive", target=rest.topic("mended")) == {"sent": "8"}
    assert _texts(await rest.drain("mended")) == KEYS
    assert await rest.drain() == await rest.drain("dead-sub") == []


async def test_what_is_out_and_dead_letters_are_discarded(rest: Rest, distributed_url: str) -> None:
    ids = await _give_up(rest, distributed_url)
    more = await _publish(rest, _keyed("n"))
    await rest.pull(max_messages=4)
    discard = f"{rest.subscription()}:discard"
    answer = await rest.ok("POST", discard, {"messageIds": [*ids[:4], *more]})
    assert answer["counts"] == {"discarded": "12"}
    by_filter: Json = {"filter": 'attributes.key = "e" OR attributes.key = "f"'}
    results = []
    while "pageToken" not in by_filter or by_filter["pageToken"]:
        page = await rest.ok("POST", discard, by_filter)
        results += page.get("results", [])
        by_filter["pageToken"] = page.get("nextPageToken", "")
    assert {each["messageId"]: each["outcome"] for each in results} == dict.fromkeys(ids[4:6], "discarded")
    assert await rest.drain() == []
    assert _texts(await rest.drain("dead-sub")) == "gh"


async def test_purges_by_a_filter_and_as_a_whole_that_is_undone(rest: Rest) -> None:
    await _topic(rest)
    await rest.create_subscription()
    await _publish(rest, _keyed())
    await rest.pull(max_messages=3)
    assert await _run(rest, "purge", filter='attributes.key = "a" OR attributes.key = "g"') == {"purged": "2"}
    await rest.ok("POST", f"{rest.subscription()}:purge", {"undoable": True})
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:undoSeek")
    assert _texts(await rest.drain()) == "bcdefh"


async def test_a_dead_letter_is_edited(rest: Rest, distributed_url: str) -> None:
    ids = await _give_up(rest, distributed_url)
    for id_ in ids:
        edited = await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": id_, "data": "bQ=="})
        assert edited["replaces"] == [id_]
    received = await rest.drain()
    assert [text(each) for each in received] == ["m"] * len(KEYS)
    assert {each["message"]["attributes"]["key"] for each in received} == {*KEYS}
    assert await rest.drain("dead-sub") == await rest.drain("bystander") == []


async def test_what_was_acked_is_resent(rest: Rest) -> None:
    await _topic(rest)
    await rest.create_subscription()
    ids = await _publish(rest, _keyed())
    assert len(await rest.drain()) == len(KEYS)
    answer = await rest.ok("POST", f"{rest.subscription()}:resend", {"messageIds": [*ids, "1000000000099999"]})
    assert answer["counts"] == {"resent": "8", "unknown": "1"}
    assert [each["message"]["messageId"] in ids for each in await rest.drain()] == [True] * len(KEYS)


async def test_pushes_are_recovered_and_missing_ones_replayed(
    rest: Rest, distributed_url: str, push_sink: PushSink
) -> None:
    pushes = Pushes(rest, push_sink)
    await _topic(rest)
    await _topic(rest, "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription("dead-sub", "dead")
    await pushes.subscribe("/status/500", deadLetterPolicy=policy, extensions={"journal": {"mode": "ALL"}})
    await _publish(rest, _keyed())
    await _fail_pushes(rest, distributed_url)
    first, second = pushes.path(), pushes.path()
    await pushes.push_to(first)
    assert await _run(rest, "recover", startTime=EVER) == {"redriven": "8"}
    await pushes.until_taken(first, *KEYS)
    assert await rest.drain("dead-sub") == []
    await pushes.push_to(second)
    await _until_settled(rest, distributed_url)
    assert await _run(rest, "replayMissing", startTime=EVER) == {"replayed": "8"}
    await pushes.until_taken(second, *KEYS)


async def _fail_pushes(rest: Rest, distributed_url: str) -> None:
    await _until(distributed_url, "SELECT count(*) = 8 FROM broker.dead_letters WHERE subscription = %s", rest)


async def _until_settled(rest: Rest, distributed_url: str) -> None:
    query = (
        "SELECT count(*) = 0 FROM broker.delivery_attempts WHERE subscription_id ="
        " (SELECT subscription_id FROM broker.subscriptions WHERE name = %s)"
    )
    await _until(distributed_url, query, rest)


async def _until(distributed_url: str, query: str, rest: Rest) -> None:
    async def is_so() -> bool:
        async with await psycopg.AsyncConnection.connect(distributed_url) as connection:
            row = await (await connection.execute(query.encode(), [rest.subscription()])).fetchone()
        return row == (True,)

    await eventually(is_so)


async def test_messages_of_one_shard_and_of_many_are_retracted(rest: Rest) -> None:
    await _topic(rest)
    await rest.create_subscription(enableMessageOrdering=True)
    await rest.create_subscription("quiet")
    ids = await _publish(rest, _keyed())
    [out] = await rest.pull(max_messages=1)
    gone = out["message"]["messageId"]
    retract = f"{rest.topic()}:retract"
    answer = await rest.ok("POST", retract, {"messageIds": [gone]})
    assert answer["counts"] == {"retracted": "1"}
    some = [id_ for id_ in ids if id_ != gone][:5]
    answer = await rest.ok("POST", retract, {"messageIds": [gone, *some]})
    assert answer["counts"] == {"retracted": "5", "alreadyRetracted": "1"}
    left = {*ids} - {gone, *some}
    await rest.modify_ack_deadline([out], 0)
    for name in ("sub", "quiet"):
        assert {each["message"]["messageId"] for each in await rest.drain(name)} == left
    [kept] = [*left][:1]
    new = await rest.ok("POST", f"{rest.topic()}:replace", {"messageId": kept, "message": message("new")})
    assert [each["message"]["messageId"] for each in await rest.drain("quiet")] == [new["replacementId"]]


async def test_what_is_to_come_later_is_cancelled_and_retracted(rest: Rest) -> None:
    await _topic(rest, delay=True)
    await rest.create_subscription()
    later = [each | {"attributes": {"broker-delay": "3600s"}} for each in _keyed()]
    ids = [*await _publish(rest, later), *await _publish(rest, _keyed())]
    await rest.ok("DELETE", f"{rest.topic()}/scheduled/{ids[0]}")
    answer = await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": ids})
    assert answer["counts"] == {"retracted": "15", "alreadyRetracted": "1"}  # what was cancelled
    assert await rest.drain() == []
    again = await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": ids})
    assert again["counts"] == {"alreadyRetracted": "16"}
