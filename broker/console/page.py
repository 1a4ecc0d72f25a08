"""The parts of a page, and the request that a page function gets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from broker.console import charts
from broker.console.api import Api, ApiError, Json, Viewer

PREVIEW_BYTES = 256  # of each message in a list
MOST_MARKS = 50  # in charts, the newest
_OF_THE_WHOLE_PAGE = (401, 503)  # statuses: nothing else of the page would be answered either


@dataclass(frozen=True, slots=True)
class Command:
    """The same data outside of the console: a `broker` command, and the path of the call below "/v1/".

    `broker`: "" for a second call of the command before.
    `body`: the JSON of a call that is a POST although it only reads; "": the call is a GET.
    """

    broker: str
    path: str
    body: str = ""

    def curl(self, base: str, *, is_signed_in: bool) -> str:
        """Return the command line of curl.  `base`: the address of the broker."""
        options = ['-H "Authorization: Bearer $TOKEN"'] if is_signed_in else []
        if self.body:
            options += ["-H 'Content-Type: application/json'", f"-d {quote(self.body)}"]
        return " ".join(["curl", *options, f"'{base}/v1/{self.path}'"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`name`: of the resource that the page is about.  `section`: the entry of the navigation that is current.

    `commands` print the page's data outside of the console.  `data` is what `template` needs.  `redirect`: the
    address of the page that is shown in its place ("": none).  `row_actions`: names of what rows are about,
    by the verb of the action that the rows have a link for.
    """

    template: str
    title: str
    kind: str
    name: str = ""
    section: str = ""
    commands: Sequence[Command] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    redirect: str = ""
    row_actions: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a page that is read by a call of its own: its answer, or the refusal that is shown in its place."""

    answer: Json
    error: ApiError | None = None

    def list(self, key: str) -> list[Json]:
        """Return the entries of a list; none if the call was refused."""
        entries: list[Json] = self.answer.get(key, [])
        return entries


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, or the refusal that is shown in its place."""

    title: str
    line: charts.Line | None
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by its name in /metrics.  `resource`: the full name of what it is of ("": all of the project).

    `is_rate`: it counts, and its chart shows how much a second.
    """

    name: str
    title: str
    resource: str = ""
    is_rate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request for a page.  `parts`: the ids in its path; `query`: its parameters; `now`: the broker's time."""

    api: Api
    viewer: Viewer
    parts: Mapping[str, str]
    query: Mapping[str, str]
    now: datetime

    @property
    def project(self) -> str:
        return f"projects/{self.parts['project']}"

    async def get(self, path: str, **query: str | int | None) -> Json:
        """Return the answer of the API.  Raises ApiError."""
        return await self.api.get(self.viewer, path, {key: value for key, value in query.items() if value})

    async def block(self, path: str, **query: str | int | None) -> Block:
        """Return the answer of the API, or its refusal.

        Raises ApiError for a refusal that concerns the whole page: the viewer is signed out, or the broker has no
        database.
        """
        return await _block(self.get(path, **query))

    async def post(self, path: str, body: Json) -> Json:
        """Return the answer of the API to a POST that only reads.  Raises ApiError."""
        return await self.api.send(self.viewer, "POST", path, body=body)

    async def post_block(self, path: str, body: Json) -> Block:
        """Return the answer of the API to a POST that only reads, or its refusal.  Raises ApiError as `block`."""
        return await _block(self.post(path, body))

    def stream(
        self, path: str, last_event_id: str, **query: str | int | None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open Server-Sent Events of the API.  Raises ApiError."""
        asked = {key: value for key, value in query.items() if value}
        return self.api.stream(self.viewer, path, asked, last_event_id=last_event_id)

    async def charts(self, *metrics: Metric) -> Sequence[Chart]:
        """Return the charts of metrics over the range that the page is asked for, with the marks of that time.

        Viewers who may not list events see no marks.
        """
        marks, *found = await asyncio.gather(
            self.block(f"{self.project}/events", filter="type=mark", pageSize=MOST_MARKS),
            *map(self._series, metrics),
        )
        return [_chart(metric, series, marks.list("events")) for metric, series in zip(metrics, found, strict=True)]

    async def _series(self, metric: Metric) -> Block:
        seconds, step = charts.RANGES[self.range]
        return await self.block(
            f"{self.project}/timeSeries",
            metric=metric.name,
            resource=metric.resource,
            interval=f"{seconds}s",
            alignmentPeriod=f"{step}s",
        )

    @property
    def range(self) -> str:
        """The range of charts: one of RANGES."""
        asked = self.query.get("range", "")
        return asked if asked in charts.RANGES else charts.DEFAULT_RANGE

    def asked(self, *names: str) -> dict[str, str]:
        """Return those of these parameters that are given."""
        return {name: self.query[name] for name in names if self.query.get(name)}

    def next_page(self, answer: Json) -> str:
        """Return the URL of the next page of a list; "" if this one is the last."""
        token = answer.get("nextPageToken")
        return f"?{urlencode({**self.query, 'pageToken': token})}" if token else ""


def _chart(metric: Metric, series: Block, marks: Sequence[Json]) -> Chart:
    if series.error is not None:
        return Chart(metric.title, None, series.error)
    line = charts.line(series.answer, metric.title, is_rate=metric.is_rate, marks=marks)
    return Chart(metric.title, line, None)


async def _block(answer: Awaitable[Json]) -> Block:
    try:
        return Block(await answer)
    except ApiError as error:
        if error.status in _OF_THE_WHOLE_PAGE:
            raise
        return Block({}, error)


MakePage = Callable[[View], Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """`path`: below /console/, with a name in braces for each id.  `rpcs`: the calls that the page makes."""

    path: str
    make: MakePage
    rpcs: Sequence[str]


Follow = Callable[[View, str], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """Server-Sent Events for a page.  `follow` takes the id of the last event that the browser has ("": none)."""

    path: str
    follow: Follow
    rpcs: Sequence[str]


def option(values: Mapping[str, str]) -> str:
    """Return options of a command, such as ` --filter 'attributes:a'`."""
    return "".join(f" --{name} {quote(value)}" for name, value in values.items())
