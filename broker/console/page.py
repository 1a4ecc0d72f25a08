"""What a page consists of, and what its function gets."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from broker.console.api import Api, ApiError, Json, Viewer

PREFIX = "/console/"


@dataclass(frozen=True, slots=True)
class Command:
    """The same data outside of the console: a `broker` command, and the path of the call below "/v1/"."""

    broker: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`name`: of the resource that the page is about.  `section`: the entry of the navigation that is current.

    `commands` print the page's data outside of the console.  `data` is what `template` needs.  `redirect`: the
    address of the page that is shown in its place ("": none).
    """

    template: str
    title: str
    kind: str
    name: str = ""
    section: str = ""
    commands: Sequence[Command] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    redirect: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a page that is read by a call of its own: its answer, or the refusal that is shown in its place."""

    answer: Json
    error: ApiError | None = None

    def list(self, key: str) -> list[Json]:
        """Return the entries of a list; none if the call was refused."""
        entries: list[Json] = self.answer.get(key, [])
        return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request for a page.  `parts`: the ids in its path; `query`: its parameters."""

    api: Api
    viewer: Viewer
    path: str
    parts: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def project(self) -> str:
        return f"projects/{self.parts['project']}"

    async def get(self, path: str, **query: str | int | None) -> Json:
        """Return the answer of the API.  Raises ApiError."""
        return await self.api.get(self.viewer, path, {key: value for key, value in query.items() if value})

    async def block(self, path: str, **query: str | int | None) -> Block:
        """Return the answer of the API, or its refusal."""
        try:
            return Block(await self.get(path, **query))
        except ApiError as error:
            return Block({}, error)

    def asked(self, *names: str) -> dict[str, str]:
        """Return those of these parameters that are given."""
        return {name: self.query[name] for name in names if self.query.get(name)}

    def next_page(self, answer: Json) -> str:
        """Return the URL of the next page of a list; "" if this one is the last."""
        token = answer.get("nextPageToken")
        return f"?{urlencode({**self.query, 'pageToken': token})}" if token else ""


MakePage = Callable[[View], Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """`path`: below /console/, with a name in braces for each id.  `rpcs`: the calls that the page makes."""

    path: str
    make: MakePage
    rpcs: Sequence[str]


def option(values: Mapping[str, str]) -> str:
    """Return options of a command, such as ` --filter 'attributes:a'`."""
    return "".join(f" --{name} {quoted(value)}" for name, value in values.items())


def quoted(value: str) -> str:
    """Return a value as a shell takes it."""
    plain = all(char.isalnum() or char in "-_./:@%+," for char in value)
    return value if plain and value else "'" + value.replace("'", "'\\''") + "'"
