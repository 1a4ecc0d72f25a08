"""A disk that is full refuses publishes and costs nothing else; once it has room, all goes on by itself."""

from pathlib import Path

import httpx
import pytest

from tests.cli.processes import faults
from tests.faults.disk import can_mount
from tests.faults.machine_faults import begin_another_file
from tests.faults.world import World
from tests.fixtures.broker import NO_TLS, Rest, eventually, message

_BODY = "x" * 200_000
_ENOUGH = 200  # of them: a file that is there already may have room for a few

pytestmark = pytest.mark.slow


async def _publish(rest: Rest) -> tuple[int, list[str]]:
    answer = await rest.call("POST", f"{rest.topic()}:publish", {"messages": [message(_BODY)]})
    return answer.status_code, answer.json().get("messageIds", [])


async def test_what_was_answered_is_there_when_the_disk_has_capacity_again(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    async with World(tmp_path / "data", disk=True).running() as world:
        [broker] = world.brokers
        async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
            rest = Rest(client, "projects/full")
            await rest.create_topic()
            await rest.create_subscription()
            published = await rest.publish("before")
            assert world.disk is not None
            assert world.disk.fill()
            for _ in range(_ENOUGH):
                status, ids = await _publish(rest)
                published += ids
                if status != 200:
                    break
            assert status == 503  # for want of room for it
            await begin_another_file(world)
            assert (await _publish(rest))[0] != 200  # the database ended itself
            world.disk.free()

            async def stored() -> list[str]:
                return (await _publish(rest))[1]

            published += await eventually(stored)
            await world.until_ready()
            received = [one["message"]["messageId"] for one in await rest.drain()]
        assert set(published) <= set(received)
        assert faults(broker) == []
