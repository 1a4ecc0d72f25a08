"""Exports and imports: what a topic retains as lines of JSON or Avro, and such into a topic, part by part (G2)."""

import asyncio
import json
from base64 import b64encode
from contextlib import suppress
from io import BytesIO
from typing import Any

import fastavro
import httpx
import pytest

from broker.core.process.tails import MAX_TAILS_OF_PROJECT
from broker.db.driver.database import Database
from broker.features.import_export.import_rows import delete_old_parts
from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Json, Rest, eventually, message, text

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


pytestmark = pytest.mark.own_broker(shards_per_topic=3)


@pytest.fixture
async def rest(rest: Rest) -> Rest:
    """The topic `topic` is retained, the topic `other` has a subscription `sub`."""
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_topic("other")
    await rest.create_subscription(topic="other", enableMessageOrdering=True)
    return rest


async def _export(rest: Rest, topic: str = "topic", **body: object) -> list[Json]:
    answer = await rest.call("POST", f"{rest.topic(topic)}:export", body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/jsonl")
    assert answer.content.endswith(b"\n") or not answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


async def _import(rest: Rest, lines: list[Json], part: int = 1, name: str = "monday") -> httpx.Response:
    content = "".join(json.dumps(line) + "\n" for line in lines)
    params = {"importId": name, "part": part}
    return await rest.client.post(f"/v1/{rest.topic('other')}:import", params=params, content=content)


async def _export_avro(rest: Rest, **body: object) -> bytes:
    answer = await rest.call("POST", f"{rest.topic()}:export", {"format": "AVRO"} | body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/avro")
    return answer.content


async def _import_avro(rest: Rest, file: bytes, part: int = 1) -> httpx.Response:
    params = {"importId": "avro", "part": part}
    return await rest.client.post(f"/v1/{rest.topic('other')}:import", params=params, content=file)


def _records(file: bytes) -> list[Any]:
    return list(fastavro.reader(BytesIO(file)))


def _as_published(one: Json) -> Any:
    return one.get("data", ""), one.get("attributes", {}), one.get("orderingKey", "")


async def test_what_was_exported_is_imported_as_it_was_in_the_order_of_keys(rest: Rest) -> None:
    for number in range(5):
        for key in "abcd":
            await rest.publish(message(f"{key}{number}", {"n": str(number), "é": '"\n'}, orderingKey=key))
    ids = await rest.publish("plain", message(attributes={"only": "attributes"}))
    lines = await _export(rest)
    assert len(lines) == 22
    [plain] = [line for line in lines if line["messageId"] == ids[0]]
    assert plain.keys() == {"data", "messageId", "publishTime"}
    for part, begin in enumerate(range(0, 22, 10), 1):
        answer = await _import(rest, lines[begin : begin + 10], part)
        assert answer.json() == {"messageCount": str(len(lines[begin : begin + 10]))}
    received = [each["message"] for each in await rest.drain()]
    assert not {each["messageId"] for each in received} & {line["messageId"] for line in lines}
    assert sorted(map(str, map(_as_published, received))) == sorted(map(str, map(_as_published, lines)))
    for key in "abcd":
        assert [text(each) for each in received if each.get("orderingKey") == key] == [
            f"{key}{n}" for n in range(5)
        ]
    metrics = (await rest.client.get("/metrics")).text
    assert 'pubsub_topic_imported_messages_total{project="p",topic="other"} 22' in metrics


@pytest.mark.parametrize("codec", ["NULL", "DEFLATE"])
async def test_an_export_in_avro_is_imported_as_it_was_in_the_order_of_keys(rest: Rest, codec: str) -> None:
    for number in range(5):
        for key in "abcd":
            await rest.publish(message(f"{key}{number}", {"n": str(number), "é": '"\n'}, orderingKey=key))
    await rest.publish("plain", message(attributes={"only": "attributes"}), "x" * 600_000)
    lines, file = await _export(rest), await _export_avro(rest, codec=codec)
    records = _records(file)
    assert [
        (each["message_id"], format_timestamp(each["publish_time"]), b64encode(each["data"]).decode())
        for each in records
    ] == [(line["messageId"], line["publishTime"], line.get("data", "")) for line in lines]
    assert (await _import_avro(rest, file)).json() == {"messageCount": "23"}
    assert (await _import_avro(rest, file)).json() == {"messageCount": "23", "repeated": True}
    received = [each["message"] for each in await rest.drain()]
    assert sorted(map(str, map(_as_published, received))) == sorted(map(str, map(_as_published, lines)))
    for key in "abcd":
        assert [text(each) for each in received if each.get("orderingKey") == key] == [
            f"{key}{n}" for n in range(5)
        ]
    assert _records(await _export_avro(rest, filter="attributes:only"))[0]["attributes"] == {"only": "attributes"}
    assert _records(await _export_avro(rest, filter="attributes:none")) == []


async def test_a_part_in_avro_that_cannot_be_is_refused_and_nothing_of_it_is_stored(rest: Rest) -> None:
    await rest.publish(*(message(f"m{n}") for n in range(3)), message(attributes={"a": "b"}))
    file = await _export_avro(rest)
    zeros = [{"data": bytes(11_000_000)}]
    data = {"type": "record", "name": "M", "fields": [{"name": "data", "type": "bytes"}]}
    cases = [
        (file[:-1] + b"!", "Block 1 of the Avro file: it does not end with the file's sync marker"),
        (file[:-3], "Block 1 of the Avro file: it ends too early"),
        (_written(data, [{"data": b"m"}, {"data": b""}]), "Message 2 of the part"),
        (_written(data, []), "no message"),
        (_written(data, [{"data": b"m"}] * 1001), "more than 1,000 messages"),
        (_written(data, zeros, "deflate"), "Block 1 of the Avro file: it is larger than 10485760 bytes, unpacked"),
        (_written(data, [{"data": bytes(4_000_000)}] * 3, "deflate"), "Request payload size exceeds the limit"),
        (_written({"type": "record", "name": "M", "fields": [{"name": "n", "type": "int"}]}, []), "'n'"),
    ]
    for content, said in cases:
        answer = await _import_avro(rest, content)
        assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True), answer.text
    assert await rest.pull() == []
    for body, said in (({"format": "CSV"}, "format=CSV"), ({"codec": "DEFLATE"}, "codec=DEFLATE")):
        assert said in (await rest.error("POST", f"{rest.topic()}:export", body))[1]
    body = {"format": "AVRO", "codec": "SNAPPY"}
    assert "codec=SNAPPY" in (await rest.error("POST", f"{rest.topic()}:export", body))[1]


def _written(schema: Any, records: list[Any], codec: str = "null") -> bytes:
    file = BytesIO()
    fastavro.writer(file, schema, records, codec, sync_interval=1)
    return file.getvalue()


async def test_a_filter_and_times_choose_what_is_exported(rest: Rest) -> None:
    await rest.publish(*(message(f"m{n}", {"n": str(n % 2)}) for n in range(20)))
    first, *_ = await _export(rest)
    await asyncio.sleep(0.002)
    await rest.publish("last")
    assert len(await _export(rest, filter='attributes.n = "1"')) == 10
    until = (await _export(rest, filter="NOT attributes:n"))[0]["publishTime"]
    assert len(await _export(rest, startTime=first["publishTime"], endTime=until)) == 20
    assert [text(each) for each in await _export(rest, startTime=until)] == ["last"]
    assert await _export(rest, "other") == []


async def test_a_part_that_is_sent_again_is_stored_once_and_the_answer_says_so(rest: Rest) -> None:
    lines = [message(f"m{n}", orderingKey="ab"[n % 2]) for n in range(6)]
    assert (await _import(rest, lines)).json() == {"messageCount": "6"}
    assert (await _import(rest, lines)).json() == {"messageCount": "6", "repeated": True}
    at_once = await asyncio.gather(*(_import(rest, lines, 2) for _ in range(6)))
    assert sum("repeated" not in answer.json() for answer in at_once) == 1
    assert len(await rest.drain()) == 12
    other = await _import(rest, lines[:2])
    assert (other.status_code, "another importId" in other.json()["error"]["message"]) == (409, True)
    assert (await _import(rest, lines[:2], name="tuesday")).json() == {"messageCount": "2"}
    assert len(await rest.drain()) == 2


async def test_a_part_that_could_not_be_stored_is_not_taken_for_stored(rest: Rest, database_url: str) -> None:
    """Its number is written down with its messages, or not at all."""
    lines = [message("a", orderingKey="a"), message("b", orderingKey="b"), message("c", orderingKey="c")]
    await _import(rest, lines)
    database = Database(database_url, pool_size=1)
    try:
        async with database.connection() as connection:  # of the three shards the last: the others are appended to
            [(last,)] = await (await connection.execute("SELECT max(shard_id) FROM shards")).fetchall()
            for frozen in ("head", "NULL"):
                await connection.execute(f"UPDATE shards SET frozen_at = {frozen} WHERE shard_id = {last}".encode())
                answer = await _import(rest, lines, 2)
                assert (answer.status_code, "repeated" in answer.json()) == (
                    409 if frozen == "head" else 200,
                    False,
                )
    finally:
        await database.close()
    assert sorted(text(each) for each in await rest.drain()) == ["a", "a", "b", "b", "c", "c"]


async def test_what_is_known_of_parts_goes_after_some_days(rest: Rest, database_url: str) -> None:
    lines = [message("m")]
    await _import(rest, lines)
    database = Database(database_url, pool_size=1)
    try:
        for days, repeated in ((1, True), (0, False)):
            async with database.connection() as connection:
                await delete_old_parts(connection, now=await database.now(), days=days)
            assert ("repeated" in (await _import(rest, lines)).json()) is repeated
    finally:
        await database.close()


async def test_a_schema_is_asked_and_its_words_are_not_imported_twice(rest: Rest) -> None:
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=numbers", {"type": "AVRO", "definition": AVRO})
    settings = {"schema": f"{rest.project}/schemas/numbers", "encoding": "JSON"}
    path = rest.topic("other")
    await rest.ok("PATCH", path, {"topic": {"schemaSettings": settings}, "updateMask": "schemaSettings"})
    refused = await _import(rest, [message('{"n": 1}'), message("no json")])
    assert (refused.status_code, "messages[1].data" in refused.json()["error"]["message"]) == (400, True)
    assert (await _import(rest, [message('{"n": 1}', {"a": "b"})])).json() == {"messageCount": "1"}
    [line] = await _export(rest, "other")
    assert line["attributes"]["googclient_schemaname"] == settings["schema"]
    assert (await _import(rest, [line], 2)).json() == {"messageCount": "1"}
    one, two = await rest.drain()
    assert one["message"]["attributes"] == two["message"]["attributes"]
    await rest.ok("PATCH", path, {"topic": {}, "updateMask": "schemaSettings"})
    assert (await _import(rest, [line], 3)).json() == {"messageCount": "1"}
    assert [each["message"]["attributes"] for each in await rest.drain()] == [line["attributes"]]


async def test_a_part_that_cannot_be_is_refused(rest: Rest) -> None:
    cases: list[tuple[dict[str, str], bytes, str]] = [
        ({"part": "1"}, b'{"data": "YQ=="}', "importId"),
        ({"importId": "a/b", "part": "1"}, b'{"data": "YQ=="}', "importId=a/b"),
        ({"importId": "a"}, b'{"data": "YQ=="}', "part="),
        ({"importId": "a", "part": "0"}, b'{"data": "YQ=="}', "part=0"),
        ({"importId": "a", "part": "1000001"}, b'{"data": "YQ=="}', "part=1000001"),
        ({"importId": "a", "part": "1"}, b"\n\n", "no message"),
        ({"importId": "a", "part": "1"}, b'{"data": "YQ=="}\n{"data": 7}\n', "Line 2"),
        ({"importId": "a", "part": "1"}, b'{"data": "YQ=="}\n{}\n', "Message 2"),
        ({"importId": "a", "part": "1"}, b'{"attributes": {"google": "x"}}\n', "Message 1"),
        (
            {"importId": "a", "part": "1"},
            b'{"data": "YQ==", "attributes": {"googclient_schemaname": "%b"}}' % (b"x" * 1025),
            "Message 1",
        ),
        ({"importId": "a", "part": "1"}, b'{"data": "YQ=="}\n' * 1001, "1,001 messages"),
        ({"importId": "a", "part": "1"}, b"{}\n" * 1_000_000, "more than 10,000 lines"),
        ({"importId": "a", "part": "1"}, b"[" + b"{}," * 5_000, "more than 4000 JSON objects"),
        (
            {"importId": "a", "part": "1"},
            b'{"attributes": {%b"a": ""}}' % (b'"a":"",' * 200_000),
            "more than 500000",
        ),
    ]
    for params, content, said in cases:
        answer = await rest.client.post(f"/v1/{rest.topic('other')}:import", params=params, content=content)
        assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True), answer.text
    assert await rest.pull() == []


async def test_topics_that_are_frozen_or_transform_or_are_missing_take_no_part(rest: Rest) -> None:
    lines = [message("m")]
    path = rest.topic("other")
    await rest.ok("POST", f"{path}:freeze", {"reason": "We move."})
    assert "We move" in (await _import(rest, lines)).text
    await rest.ok("POST", f"{path}:unfreeze")
    transforms = [{"fields": {"remove": ["body.a"]}}]
    change = {"topic": {"messageTransforms": transforms}, "updateMask": "messageTransforms"}
    await rest.ok("PATCH", path, change)
    assert "has transforms" in (await _import(rest, lines)).text
    await rest.ok("DELETE", path)
    assert (await _import(rest, lines)).status_code == 404
    assert (await rest.error("POST", f"{path}:export", {}))[0] == "NOT_FOUND"
    assert (await rest.error("POST", f"{rest.topic()}:export", {"filter": "attributes.n ="}))[
        0
    ] == "INVALID_ARGUMENT"
    ends = {"startTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"}
    assert (await rest.error("POST", f"{rest.topic()}:export", ends))[0] == "INVALID_ARGUMENT"


async def test_an_export_ends_with_its_caller_and_waits_for_it(rest: Rest) -> None:
    """It is read as it is taken: what has not been taken when the topic is purged is told to be missing."""
    for _ in range(40):
        await rest.publish("x" * 700_000)
    url = f"/v1/{rest.topic()}:export"
    async with rest.client.stream("POST", url, json={}) as answer:
        await anext(answer.aiter_lines())
        await rest.ok("POST", f"{rest.topic()}:purge")
    for _ in range(MAX_TAILS_OF_PROJECT + 2):  # each leaves a place, though nobody has read it to its end
        await rest.publish("y" * 700_000)

        async def has_capacity() -> bool:
            with suppress(AssertionError):
                await _begin(rest, url)
                return True
            return False

        await eventually(has_capacity)


async def _begin(rest: Rest, url: str) -> None:
    async with rest.client.stream("POST", url, json={}) as answer:
        assert answer.status_code == 200


async def test_what_is_published_while_it_is_exported_is_not_meant(rest: Rest) -> None:
    for number in range(42):
        await rest.publish(str(number) + " " * 200_000)
    lines: list[Json] = []
    async with rest.client.stream("POST", f"/v1/{rest.topic()}:export", json={}) as answer:
        async for line in answer.aiter_lines():
            if not lines:
                await rest.publish("late")
            lines.append(json.loads(line))
    assert sorted(int(text(line)) for line in lines) == [*range(42)]


@pytest.mark.parametrize("body", [{}, {"format": "AVRO"}], ids=str)
async def test_an_export_that_cannot_go_on_says_so_and_is_cut_off(rest: Rest, body: Json) -> None:
    for _ in range(40):
        await rest.publish("x" * 700_000)
    read = bytearray()

    async def read_on() -> None:
        async with rest.client.stream("POST", f"/v1/{rest.topic()}:export", json=body) as answer:
            async for piece in answer.aiter_bytes():
                if not read:
                    await rest.ok("POST", f"{rest.topic()}:purge")
                read.extend(piece)

    with pytest.raises(httpx.RemoteProtocolError):
        await read_on()
    if body:
        blocks = fastavro.block_reader(BytesIO(bytes(read)))
        assert next(blocks).num_records == 1  # type: ignore[attr-defined]
        return
    error = json.loads(read.splitlines()[-1])["error"]
    assert error["status"] == "NOT_FOUND"
