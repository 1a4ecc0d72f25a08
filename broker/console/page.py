"""The parts of a page, and the request that a page function gets."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any, Literal
from urllib.parse import urlencode

from broker.console import charts
from broker.console.api import Api, ApiError, Json, Viewer

Kind = Literal["page", "shared", "error"]
PAGE_SIZE = 50  # entries of a list
PREVIEW_BYTES = 256  # of each message in a list
MOST_MARKS = 50  # in charts, the newest
_ID = re.compile(r"[A-Za-z0-9._~+%@:-]+")  # of all kinds of resources; none ends a word of a shell
MARK = "mark"  # the type of an event
_OF_THE_WHOLE_PAGE = (401, 503)  # statuses: nothing else of the page would be answered either


@dataclass(frozen=True, slots=True)
class Command:
    """The same data outside of the console: a `broker` command, and the path of the call below "/v1/".

    `broker`: "" for a second call of the command before.  `query`: the parameters of the call.
    `body`: the JSON of a call that is a POST although it only reads; "": the call is a GET.
    """

    broker: str
    path: str
    body: str = ""
    query: Mapping[str, str | int] = field(default_factory=dict)

    def curl(self, base: str, *, is_signed_in: bool) -> str:
        """Return the command line of curl.  `base`: the address of the broker."""
        options = ['-H "Authorization: Bearer $TOKEN"'] if is_signed_in else []
        if self.body:
            options += ["-H 'Content-Type: application/json'", f"-d {quote(self.body)}"]
        query = f"?{urlencode(self.query)}" if self.query else ""
        return " ".join(["curl", *options, quote(f"{base}/v1/{self.path}{query}")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`kind`: "shared" for the pages of the holders of share links, who see no others; "error" for a refusal.

    `name`: of the resource that the page is about.  `section`: the entry of the navigation that is current.

    `commands` print the page's data outside of the console.  `data` is what `template` needs.  `redirect`: the
    address of the page that is shown in its place ("": none).  `row_actions`: names of what rows are about,
    by the verb of the action that the rows have a link for.
    """

    template: str
    title: str
    kind: Kind = "page"
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

    def of_metric(self, name: str) -> "Block":
        """Return the time series of one of the metrics that were asked for."""
        found = [one for one in self.list("timeSeries") if one["metric"]["type"] == name]
        return Block({**self.answer, "timeSeries": found}, self.error)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, or the refusal that is shown in its place."""

    title: str
    line: charts.Line | None
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by its name in /metrics.  `is_rate`: it counts, and its chart shows how much a second."""

    name: str
    title: str
    is_rate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request for a page.  `parts`: the ids in its path; `query`: its parameters; `now`: the broker's time."""

    api: Api
    viewer: Viewer
    parts: Mapping[str, str]
    query: Mapping[str, str]
    now: datetime

    def __post_init__(self) -> None:
        """Refuse what is no id of a resource: pages may show commands with the ids of their address.

        Raises ApiError.
        """
        for part in self.parts.values():
            if not _ID.fullmatch(part):
                raise ApiError(404, "NOT_FOUND", f"There is no resource {part}.")

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
        return await block_of(self.get(path, **query))

    async def post(self, path: str, body: Json) -> Json:
        """Return the answer of the API to a POST that only reads.  Raises ApiError."""
        return await self.api.send(self.viewer, "POST", path, body=body)

    async def post_block(self, path: str, body: Json) -> Block:
        """Return the answer of the API to a POST that only reads, or its refusal.  Raises ApiError as `block`."""
        return await block_of(self.post(path, body))

    def stream(
        self, path: str, last_event_id: str, **query: str | int | None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open Server-Sent Events of the API.  Raises ApiError."""
        asked = {key: value for key, value in query.items() if value}
        return self.api.stream(self.viewer, path, asked, last_event_id=last_event_id)

    async def charts(self, *metrics: Metric, resource: str) -> Sequence[Chart]:
        """Return the charts of metrics of a resource over the range that the page is asked for, with marks."""
        marks, series = await asyncio.gather(
            self.marks(), self.series([metric.name for metric in metrics], self.range, resource=resource)
        )
        return charts_of(metrics, series, marks)

    async def marks(self) -> Block:
        """Return the newest marks; none for viewers who may not list events."""
        return await self.block(f"{self.project}/events", filter=f"type={MARK}", pageSize=MOST_MARKS)

    async def series(self, metrics: Sequence[str], range_: str, *, resource: str = "", label: str = "") -> Block:
        """Return the time series of metrics over one of RANGES.

        `resource`: the full name of what they are of ("": all of the project).  `label`: the one that they have
        ("": any).
        """
        seconds, step = charts.RANGES[range_]
        return await self.block(
            f"{self.project}/timeSeries",
            metric=",".join(metrics),
            resource=resource,
            label=label,
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

    @property
    def page(self) -> dict[str, str | int | None]:
        """The parameters of a call for the page of a list that is asked for."""
        return {"pageSize": PAGE_SIZE, "pageToken": self.query.get("pageToken")}

    def next_page(self, answer: Json) -> str:
        """Return the URL of the next page of a list; "" if this one is the last."""
        token = answer.get("nextPageToken")
        return f"?{urlencode({**self.query, 'pageToken': token})}" if token else ""


def charts_of(metrics: Sequence[Metric], series: Block, marks: Block) -> Sequence[Chart]:
    """Return the charts of metrics that one answer has."""
    if series.error is not None:
        return [Chart(metric.title, None, series.error) for metric in metrics]
    events = [one for one in marks.list("events") if one["type"] == MARK]
    return [
        Chart(
            metric.title,
            charts.line(series.of_metric(metric.name).answer, metric.title, is_rate=metric.is_rate, marks=events),
            None,
        )
        for metric in metrics
    ]


async def no_block() -> Block:
    """Return a part of a page for which no call is made."""
    return Block({})


async def block_of(answer: Awaitable[Json]) -> Block:
    """Return an answer of the API, or its refusal.  Raises ApiError for a refusal of the whole page."""
    try:
        return Block(await answer)
    except ApiError as error:
        if error.status in _OF_THE_WHOLE_PAGE:
            raise
        return Block({}, error)


def list_page(
    view: View,
    title: str,
    *,
    collection: str,
    command: str,
    data: Mapping[str, Any],
    section: str = "",
    row_actions: Mapping[str, Sequence[str]] | None = None,
) -> Page:
    """Return the page of a collection of the project.  `command` prints it.  `section`: "" is the collection's."""
    name = view.project
    return Page(
        template=f"{title.lower().replace(' ', '_')}.html",
        title=title,
        name=name,
        section=section or collection,
        commands=[Command(f"{command} --project {view.parts['project']}", f"{name}/{collection}")],
        row_actions=row_actions or {},
        data=data,
    )


def resource_page(view: View, kind: str, *, command: str, data: Mapping[str, Any]) -> Page:
    """Return the page of a resource of the project.  `kind`: as "snapshot".  `command` prints it, by its id."""
    id_ = view.parts[kind]
    name = f"{view.project}/{kind}s/{id_}"
    return Page(
        template=f"{kind}.html",
        title=id_,
        name=name,
        section=f"{kind}s",
        commands=[Command(f"{command} {id_} --project {view.parts['project']}", name)],
        data=data,
    )


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
