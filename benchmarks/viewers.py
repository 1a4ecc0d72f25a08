"""`python -m benchmarks.viewers HOST PORT VIEWERS SECONDS PATH…`: pages of the console that are open.

Each viewer has all the pages open, and reads each of them again after so many seconds, as the console's script
does; their times are spread evenly.  Says "ready" once each page was read.
"""

import asyncio
import sys

from benchmarks.attacks.caller import Caller


def page_request(path: str, *, is_open: bool = False) -> bytes:
    """A browser's request for a page of the console.  `is_open`: the page reads itself anew, as console.js does."""
    mode = "Sec-Fetch-Mode: cors\r\nCache-Control: max-age=1" if is_open else "Sec-Fetch-Mode: navigate"
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n"
        f"Sec-Fetch-Site: same-origin\r\n{mode}\r\n\r\n"
    ).encode()


async def view(host: str, port: int, viewers: int, seconds: float, paths: list[str]) -> None:
    """Raises RuntimeError if a page cannot be read."""
    opened = [asyncio.Event() for _ in range(viewers)]
    async with asyncio.TaskGroup() as tasks:
        for number, event in enumerate(opened):
            delay = seconds * number / viewers
            tasks.create_task(_view(Caller(host, port), delay, seconds, paths, event))
        for event in opened:
            await event.wait()
        print("ready", flush=True)


async def _view(caller: Caller, delay: float, seconds: float, paths: list[str], opened: asyncio.Event) -> None:
    await asyncio.sleep(delay)
    while True:
        for path in paths:
            if not await caller.send(page_request(path, is_open=opened.is_set())):
                raise RuntimeError(f"{path} was not answered")
        opened.set()
        await asyncio.sleep(seconds)


if __name__ == "__main__":
    host, port, viewers, seconds, *paths = sys.argv[1:]
    asyncio.run(view(host, int(port), int(viewers), float(seconds), paths))
