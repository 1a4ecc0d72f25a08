"""A partition is missing: whoever writes makes it and writes, and its caller notices nothing (A10)."""

import json
from collections.abc import Awaitable, Callable

import pytest

from broker.db.driver.database import Database
from tests.features.dead_letters.test_edits import _edit as edit
from tests.features.dead_letters.test_redrive import _give_up as give_up
from tests.features.dead_letters.test_redrive import _redrive as redrive
from tests.features.retraction.test_retractions import _replace as replace
from tests.features.schedules.test_schedules import PATH
from tests.features.schedules.test_schedules import body as schedule
from tests.fixtures.broker import Json, Rest, message

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


async def _publish(rest: Rest, dead: list[str]) -> object:
    return await rest.publish("m")


async def _edit(rest: Rest, dead: list[str]) -> object:
    return await edit(rest, dead[1], setAttributes={"by": "hand"})


async def _import(rest: Rest, dead: list[str]) -> object:
    params, line = {"importId": "i", "part": 1}, json.dumps({"data": "bQ=="})
    answer = await rest.client.post(f"/v1/{rest.topic()}:import", params=params, content=line + "\n")
    assert answer.status_code == 200, answer.text
    return answer


async def _replace(rest: Rest, dead: list[str]) -> object:
    [old] = [each["message"]["messageId"] for each in await rest.pull("other-sub")]
    answer = await replace(rest, old, message("new"), topic="other")
    assert answer["outcome"] == "retracted"
    return answer


async def _run_schedule(rest: Rest, dead: list[str]) -> object:
    ran: Json = await rest.ok("POST", f"{PATH}/hand:run", json={})
    assert ran["outcome"] == "PUBLISHED"
    return ran


async def _redrive(rest: Rest, dead: list[str]) -> object:
    ended = await redrive(rest, target=rest.topic("other"))
    assert ended["metadata"]["done"] == "1"
    return ended


@pytest.mark.parametrize(
    "write", [_publish, _edit, _import, _replace, _run_schedule, _redrive], ids=lambda write: write.__name__[1:]
)
async def test_a_write_makes_the_partition_that_it_lacks(
    rest: Rest, database: Database, write: Callable[[Rest, list[str]], Awaitable[object]]
) -> None:
    dead = await give_up(rest, "a", "b")
    await edit(rest, dead[0])  # edited messages have a shard of their own from now on
    await rest.create_topic("other")
    await rest.create_subscription("other-sub", "other")
    await rest.publish("old", topic="other")
    await rest.ok("PUT", f"{PATH}/hand", json=schedule())
    async with database.connection() as connection:
        await connection.execute(b"UPDATE shards SET last_publish_time = now() + interval '1 hour'")
    assert await write(rest, dead)
