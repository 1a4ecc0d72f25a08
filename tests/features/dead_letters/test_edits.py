"""A dead letter is edited, and comes back as a new message to its subscription alone; an extension (G2)."""

import asyncio

import pytest

from broker.db.driver import statements
from broker.db.driver.database import Database
from tests.features.dead_letters.test_redrive import _give_up as give_up
from tests.features.dead_letters.test_redrive import _redrive as redrive
from tests.fixtures.broker import Json, Rest, eventually, message, text

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)

MENDED = "bWVuZGVk"  # mended


async def _edit(rest: Rest, message_id: str, **body: object) -> Json:
    return await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": message_id, **body})


async def test_it_comes_back_as_it_was_edited_and_nobody_else_gets_anything(rest: Rest) -> None:
    ids = await give_up(rest, *(message(f"m{n}", {"n": str(n), "bad": "1"}) for n in range(3)))
    pulling = asyncio.create_task(rest.pull(wait=True))
    await asyncio.sleep(0)
    edited = await _edit(rest, ids[1], data=MENDED, setAttributes={"by": "hand"}, removeAttributes=["bad"])
    assert (edited["replaces"], edited["outOfOrder"]) == ([ids[1]], False)
    [received] = await pulling
    assert received["message"]["messageId"] == edited["messageId"] not in ids
    assert (text(received), received["message"]["attributes"]) == ("mended", {"n": "1", "by": "hand"})
    assert received["deliveryAttempt"] == 1
    await rest.acknowledge([received])
    assert await rest.drain("bystander") == []
    dead_letters = await rest.pull("dead-sub")
    assert sorted(text(each) for each in dead_letters) == ["m0", "m2"]
    [dead_letter] = [each for each in dead_letters if text(each) == "m2"]
    again = await _edit(rest, dead_letter["message"]["messageId"])
    assert again["replaces"] == [ids[2]], "by the letter's own id, and though somebody has it"
    assert [text(each) for each in await rest.drain()] == ["m2"]
    why = await rest.error("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": ids[1]})
    assert why[0] == "FAILED_PRECONDITION", "it is a dead letter no more"
    assert "Its dead letter was edited at 2" in why[1]
    assert f", and came back as message {edited['messageId']} (messageId={ids[1]})" in why[1]
    assert (await redrive(rest))["metadata"]["counts"] == {"outstanding": "1"}


async def test_a_purge_by_a_filter_finds_what_was_edited(rest: Rest) -> None:
    ids = await give_up(rest, "m0", "m1")
    await _edit(rest, ids[0], setAttributes={"env": "test"})
    await _edit(rest, ids[1], setAttributes={"env": "prod"})
    started = await rest.ok("POST", f"{rest.subscription()}:purge", {"filter": 'attributes.env = "test"'})
    ended = await rest.ok("POST", f"{started['name']}:wait", {})
    assert ended["metadata"]["counts"] == {"purged": "1"}
    assert [text(each) for each in await rest.drain()] == ["m1"]


async def test_what_is_left_of_a_deleted_subscription_is_deleted(rest: Rest, database: Database) -> None:
    [first] = await give_up(rest, "m")
    await _edit(rest, first)
    async with database.connection() as connection:
        private = b"SELECT count(*) FROM shards WHERE topic_id < 0"
        await connection.execute(statements.load("delete_closed_shards").encode(), prepare=False)
        assert await (await connection.execute(private)).fetchone() == (1,)
        await rest.ok("DELETE", rest.subscription())
        await connection.execute(statements.load("delete_closed_shards").encode(), prepare=False)
        assert await (await connection.execute(private)).fetchone() == (0,)


async def test_what_fails_again_is_a_dead_letter_again(rest: Rest) -> None:
    [first] = await give_up(rest, message("m", orderingKey="k"), enableMessageOrdering=True)
    edited = await _edit(rest, first, data=MENDED)
    assert edited["outOfOrder"]
    await rest.modify_ack_deadline(await rest.pull(), 0)

    async def is_dead() -> bool:
        found = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
        return [each["sourceMessageId"] for each in found.get("deadLetters", [])] == [edited["messageId"]]

    await eventually(is_dead)
    assert (await redrive(rest))["response"]["redriven"] == "1"
    [received] = await rest.pull()
    assert (text(received), received["message"]["messageId"]) == ("mended", edited["messageId"])
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{edited['messageId']}")
    assert [entry["event"] for entry in report["timeline"]] == ["DEAD_LETTERED", "REDRIVEN"]


async def test_a_seek_brings_it_back_and_one_to_a_snapshot_from_before_leaves_it_alone(rest: Rest) -> None:
    [first] = await give_up(rest, "m")
    before = rest.subscription().replace("subscriptions", "snapshots")
    await rest.ok("PUT", before, {"subscription": rest.subscription()})
    await rest.ok("PATCH", rest.subscription(), _patch({"retainAckedMessages": True}))
    await rest.ok("POST", f"{rest.subscription()}:pause", {})
    await _edit(rest, first, data=MENDED)
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:resume", {})
    assert [text(each) for each in await rest.drain()] == ["mended"]
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": before})
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    assert sorted(text(each) for each in await rest.drain()) == ["m", "mended"]
    await rest.publish("after")
    await rest.ok("POST", f"{rest.subscription()}:purge", {})
    assert await rest.pull() == []


def _patch(fields: Json) -> Json:
    return {"subscription": fields, "updateMask": ",".join(fields)}


async def test_of_many_edits_at_once_one_is_made(rest: Rest) -> None:
    [first] = await give_up(rest, "m")
    path = f"{rest.subscription()}:editDeadLetter"
    answers = await asyncio.gather(
        *(rest.call("POST", path, {"messageId": first, "data": MENDED}) for _ in "12345")
    )
    codes = sorted(answer.status_code for answer in answers)
    assert codes[0] == 200
    assert {*codes[1:]} <= {400, 409}
    assert [text(each) for each in await rest.drain()] == ["mended"]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "messageId is missing"),
        ({"messageId": "x"}, "INVALID_ARGUMENT", "messageId=x"),
        ({"messageId": "1000000000000099"}, "NOT_FOUND", "messageId=1000000000000099"),
        ({"data": "", "removeAttributes": ["env"]}, "INVALID_ARGUMENT", "is empty"),
        ({"setAttributes": {"env": "x"}, "removeAttributes": ["env"]}, "INVALID_ARGUMENT", "both"),
        ({"setAttributes": {"env": "test"}}, "FAILED_PRECONDITION", "filter"),
        ({"setAttributes": {"googx": "y"}}, "INVALID_ARGUMENT", "googx"),
    ],
)
async def test_what_cannot_be_is_refused_and_the_dead_letter_stays(
    rest: Rest, body: Json, code: str, said: str
) -> None:
    [first] = await give_up(rest, message("m", {"env": "prod"}), filter='attributes.env = "prod"')
    if body and "messageId" not in body:
        body = {"messageId": first, **body}
    found = await rest.error("POST", f"{rest.subscription()}:editDeadLetter", body)
    assert (found[0], said in found[1]) == (code, True), found
    assert [text(each) for each in await rest.drain("dead-sub")] == ["m"]


async def test_a_discarded_dead_letter_stays_discarded(rest: Rest) -> None:
    ids = await give_up(rest, "m1", "m2")
    await rest.ok("POST", f"{rest.subscription()}:discard", {"messageIds": ids[:1]})
    code, why = await rest.error("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": ids[0]})
    assert (code, why.startswith("Its dead letter was discarded at 2")) == ("FAILED_PRECONDITION", True)
    assert await rest.drain() == []
    await _edit(rest, ids[1])
    assert [text(each) for each in await rest.drain()] == ["m2"]
