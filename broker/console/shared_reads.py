"""Reads a page once for all who have it open.

An open page reads itself anew every few seconds, and takes an answer that is up to a second old
(`Cache-Control: max-age=1`, RFC 9111, section 5.2.1.1).  So the pages of one caller that show the same cost little
more than one of them.  A page that somebody opens, reloads, or is sent to after an action is always read anew.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

LONGEST = timedelta(seconds=1)
MOST_KEPT = 100  # answers
_DIRECTIVE = "max-age=1"


class _Read(NamedTuple):
    began: datetime
    answer: asyncio.Task[Response]


def takes_shared(request: Request) -> bool:
    """Return whether the client takes an answer that is up to LONGEST old."""
    return request.headers.get("cache-control") == _DIRECTIVE


class SharedReads:
    """The answers of the last second, by what they depend on."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._reads: dict[Hashable, _Read] = {}

    async def answer(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Response]]) -> Response:
        """Return the answer that was begun within LONGEST, also if it is still being made, or make it.

        It is made to its end if the client that has asked for it goes.  Errors are not kept.
        """
        now = self._now()
        self._reads = {
            one: read
            for one, read in self._reads.items()
            if abs(now - read.began) <= LONGEST and not (read.answer.done() and _has_failed(read.answer))
        }
        read = self._reads.get(key)
        if read is None:
            read = _Read(now, asyncio.create_task(make(), name="page of the console for all who have it open"))
            if len(self._reads) < MOST_KEPT:
                self._reads[key] = read
        return await asyncio.shield(read.answer)


def _has_failed(answer: asyncio.Task[Response]) -> bool:
    return answer.cancelled() or answer.exception() is not None or answer.result().status_code != 200
