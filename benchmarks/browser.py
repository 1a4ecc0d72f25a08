"""`python -m benchmarks.browser HOST PORT TOPIC SUBSCRIPTION PAUSE`: look at messages, tail the topic.

Until it is ended: three who look, each at one thing after the other with so many seconds
between; 0: as fast as there are answers.
Says "ready" once each of them has had an answer.
"""

import asyncio
import re
import sys

from benchmarks.attacks.caller import Caller
from benchmarks.wire import build_request

_PAGE = 100  # messages
_MESSAGE_ID = re.compile(rb'"messageId": *"(\d+)"')


async def browse(host: str, port: int, topic: str, subscription: str, pause: float) -> None:
    """Raises RuntimeError for an answer that is not what was asked for."""
    checked = [asyncio.Event() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_look_at_the_topic(Caller(host, port), topic, subscription, pause, checked[0]))
        tasks.create_task(_look_at_the_subscription(Caller(host, port), subscription, pause, checked[1]))
        tasks.create_task(_tail(host, port, topic, checked[2]))
        for each in checked:
            await each.wait()
        print("ready", flush=True)


async def _get(caller: Caller, path: str) -> bytes:
    answer = await caller.send(build_request("GET", f"/v1/{path}", b""))
    if b'"error"' in answer[:20] or not answer:
        raise RuntimeError(f"{path}: {answer[:300]!r}")
    return answer


async def _look_at_the_topic(
    caller: Caller, topic: str, subscription: str, pause: float, checked: asyncio.Event
) -> None:
    """The newest messages, and what became of the first of them, for all and for one."""
    while True:
        page = await _get(caller, f"{topic}/messages?order=newest&pageSize={_PAGE}")
        for message_id in _MESSAGE_ID.findall(page)[:1]:
            for where in (topic, subscription):
                await asyncio.sleep(pause)
                await _get(caller, f"{where}/messages/{message_id.decode()}")
        checked.set()
        await asyncio.sleep(pause)


async def _look_at_the_subscription(
    caller: Caller, subscription: str, pause: float, checked: asyncio.Event
) -> None:
    while True:
        for state in ("outstanding", "waiting"):
            await _get(caller, f"{subscription}/messages?state={state}&pageSize={_PAGE}")
            await asyncio.sleep(pause)
        checked.set()


async def _tail(host: str, port: int, topic: str, checked: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(build_request("GET", f"/v1/{topic}:tail", b""))
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:20]:
        raise RuntimeError(f"{topic}:tail: {head!r}")
    checked.set()
    while await reader.read(2**20):
        """What comes is thrown away."""


if __name__ == "__main__":
    host, port, topic, subscription, pause = sys.argv[1:]
    asyncio.run(browse(host, int(port), topic, subscription, float(pause)))
