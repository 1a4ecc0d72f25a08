"""Which methods of the API which commands call, as docs/methods-and-commands.md lists it and as they do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.architecture.surface import api_operations
from tests.fixtures.broker import repository

PAGE = repository() / "docs" / "methods-and-commands.md"
_ROW = re.compile(r"^\| `([\w.]+)` \| `(broker [\w -]+)` \|$", re.MULTILINE)


def listed() -> dict[str, str]:
    """The page's table: a command for each method."""
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(dict(rows)) == len(rows), "a method is listed twice"
    return dict(rows)


def methods() -> set[str]:
    """Those of the API over REST."""
    return {operation["x-rpc"] for operation in api_operations().values()}


def method_of(verb: str, path: str) -> str:
    """The method that a request calls; "" for what is no method of the API."""
    for (method, pattern), operation in api_operations().items():
        if method == verb and _pattern(pattern).fullmatch(path.removeprefix("/v1/")):
            name: str = operation["x-rpc"]
            return name
    return ""


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path).replace(r"\*", "[^/:]+"))


@dataclass
class Calls:
    """The methods that commands call, by the command; of commands that run in this process."""

    by_command: dict[str, set[str]] = field(default_factory=dict)
    _running: str | None = None

    @contextmanager
    def of(self, command: str) -> Iterator[None]:
        self._running = command
        try:
            yield
        finally:
            self._running = None

    def note(self, request: httpx.Request) -> None:
        if self._running is not None and (method := method_of(request.method, request.url.path)):
            self.by_command.setdefault(method, set()).add(self._running)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Notes each request that is sent over httpx."""
    noted, send = Calls(), httpx.Client.send

    def noting(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        noted.note(request)
        return send(client, request, **options)

    monkeypatch.setattr(httpx.Client, "send", noting)
    return noted
