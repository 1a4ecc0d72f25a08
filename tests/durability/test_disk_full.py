"""A disk that is full refuses publishes and costs nothing else; once it has room, all goes on by itself."""

from pathlib import Path

import httpx
import psycopg
import pytest

from tests.cli.processes import faults
from tests.faults.disk import can_mount
from tests.faults.world import World
from tests.fixtures.broker import Rest, eventually, message

_BODY = "x" * 200_000
_ENOUGH = 200  # publishes of such bodies, and the log of the database needs another file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here"),
]


async def _publish(rest: Rest) -> tuple[int, list[str]]:
    answer = await rest.call("POST", f"{rest.topic()}:publish", {"messages": [message(_BODY)]})
    return answer.status_code, answer.json().get("messageIds", [])


async def test_what_was_answered_is_there_when_the_disk_has_room_again(tmp_path: Path) -> None:
    async with World(tmp_path / "data", disk=True).running() as world:
        [broker] = world.brokers
        async with httpx.AsyncClient(base_url=broker.url, timeout=60) as client:
            rest = Rest(client, "projects/full")
            await rest.create_topic()
            await rest.create_subscription()
            published = await rest.publish("before")
            assert world.disk is not None
            assert world.disk.fill()
            statuses = set()
            for _ in range(_ENOUGH):
                status, ids = await _publish(rest)
                statuses.add(status)
                published += ids
            assert 503 in statuses
            assert statuses <= {200, 429, 503}
            world.disk.free()

            async def stored() -> list[str]:
                return (await _publish(rest))[1]

            published += await eventually(stored, seconds=60)
            await world.until_ready()
            received = [one["message"]["messageId"] for one in await rest.drain()]
        assert set(published) <= set(received)
        assert faults(broker) == []
        with psycopg.connect(world.database_url) as session:  # it is the database that was started
            assert session.execute("SELECT 1").fetchone() == (1,)
