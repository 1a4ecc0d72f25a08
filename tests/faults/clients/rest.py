"""Calls over REST: what came back, and what that says about what happened."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.faults.clients.lease import now
from tests.faults.guard import DENIED, Guard
from tests.faults.operation import Outcome

Json = dict[str, Any]

CALL_SECONDS = 8.0  # then a call is given up: its process is stopped, or worse
_PAUSE_SECONDS = 0.1  # after a failure
_PATIENCE_SECONDS = 200.0  # longer than any faults in a row keep brokers from serving
# Aborted: it met a concurrent change more often than the broker tries.
_UNKNOWN = {(503, "UNAVAILABLE"), (409, "ABORTED"), (504, "DEADLINE_EXCEEDED")}


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` is 0 if there was none."""

    outcome: Outcome
    status: int = 0
    body: Json = field(default_factory=dict)
    content: bytes = b""  # of one that is no JSON


class RestCaller:
    """Calls any of `urls`, which a fault may change.  `unforeseen`: answers that no fault excuses."""

    def __init__(
        self, urls: Sequence[str], project: str, guard: Guard | None = None, superuser_url: str = ""
    ) -> None:
        """`superuser_url`: of the database, for applications that have their tables in it."""
        self.urls = urls
        self.superuser_url = superuser_url
        self.guard = guard
        self.project = project
        self.failures: Counter[str] = Counter()
        self.unforeseen: list[str] = []
        self._next = 0
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> "RestCaller":
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    @property
    def _tls(self) -> ssl.SSLContext | bool:
        return True if self.guard is None else self.guard.tls

    def headers(self) -> Mapping[str, str]:
        """What shows who calls, where that is asked."""
        return {} if self.guard is None else self.guard.headers()

    def is_denied(self, answer: Answer) -> bool:
        """Whether the key or the role of the callers had just changed: the call was not made."""
        return self.guard is not None and answer.status in DENIED

    async def call(
        self, method: str, path: str, body: Json | None = None, *, content: bytes | None = None
    ) -> Answer:
        """One try.  `path` is below the project; `content`: a body that is no JSON."""
        self._next += 1
        url = f"{self.urls[self._next % len(self.urls)]}/v1/{self.project}/{path}"
        try:
            async with self._session.request(
                method, url, json=body, data=content, headers=self.headers(), ssl=self._tls
            ) as response:
                status = response.status
                if status == 200 and response.content_type != "application/json":
                    return Answer("ok", status, content=await response.read())
                answer: Json = await response.json()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            self.failures[type(error).__name__] += 1
            await asyncio.sleep(_PAUSE_SECONDS)
            return Answer("unknown")
        if status == 200:
            return Answer("ok", status, answer)
        error_status = answer["error"]["status"]
        self.failures[error_status] += 1
        await asyncio.sleep(_PAUSE_SECONDS)
        if (status, error_status) in _UNKNOWN:
            return Answer("unknown", status, answer)
        if status >= 500:
            self.unforeseen.append(f"{method} {path}: {answer}")
            return Answer("unknown", status, answer)
        return Answer("failed", status, answer)

    async def do(self, method: str, path: str, body: Json | None = None, *, fine: Sequence[int] = ()) -> Json:
        """Try until it is done, or answered with a status that is `fine`; so only what may be done twice."""
        until = now() + _PATIENCE_SECONDS
        while now() < until:
            answer = await self.call(method, path, body)
            if answer.outcome == "ok" or answer.status in fine:
                return answer.body
            assert answer.outcome == "unknown" or self.is_denied(answer), f"{method} {path}: {answer.body}"
        raise AssertionError(f"{method} {path}: unavailable for long; {self.failures}")
