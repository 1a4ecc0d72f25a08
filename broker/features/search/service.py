"""Searches a project."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.core.catalog.topic_rows import find_topic_of_shard
from broker.core.log.logged_message import read_message
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.permitted import AskPermission, is_permitted
from broker.db.driver.database import Database, ResourceConnection
from broker.fairness.resource_turns import ResourceTurns
from broker.features.search.result import MAX_EXAMINED, STEPS, Result, ResultKind, Scope, SearchPage
from broker.features.search.rows import Query, find_containing, find_exact
from broker.model.errors import InvalidArgument
from broker.model.message_id import parse_message_id
from broker.model.names import check_project, project_of
from broker.model.page import page_token

HungUp = Callable[[], Awaitable[None]]


class Results(NamedTuple):
    """A page of results.  There may be more results if `next_page_token` is not empty, even if
    the page is empty.
    """

    results: list[Result]
    next_page_token: str


@dataclass
class _Progress:
    """The state of a search.  `budget`: the number of rows that the call may still examine."""

    page: SearchPage
    results: list[Result]
    budget: int

    @property
    def capacity(self) -> int:
        return self.page.size - len(self.results)


class SearchService:
    """The search.  It only reads: it changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, clock: DatabaseClock, turns: ResourceTurns, *, max_examined: int = MAX_EXAMINED
    ) -> None:
        """`turns` are those of calls that read much.  `max_examined`: the most rows that a call compares with the
        text.
        """
        self._max_examined = max_examined
        self._database = database
        self._clock = clock
        self._turns = turns

    async def search(
        self, scope: Scope, text: str, page: SearchPage, *, may_read: AskPermission, hung_up: HungUp | None = None
    ) -> Results:
        """Finds the resources of a project whose id or full name is the text, and then those with the text in a
        field.

        `may_read` raises PermissionDenied for topics whose messages the caller may not read.  A call whose caller
        hangs up while it waits (`hung_up()` completes) does not begin.  Raises InvalidArgument, Unavailable (too
        many such calls).
        """
        check_project(scope.project)
        query = Query(scope, text, self._clock.now())
        progress = _Progress(page, [], self._max_examined)
        async with self._turns.of(scope.project, hung_up=hung_up):
            if page.step == 0 and ResultKind.MESSAGE in scope.names:
                progress.results += await self._find_message(scope.project, text, may_read)
            async with self._database.transaction() as connection:
                token = await _search(connection, query, progress)
        return Results(progress.results, token)

    async def _find_message(self, project: str, text: str, may_read: AskPermission) -> list[Result]:
        """Returns the message with this id, if the log of one of the project's topics contains it."""
        try:
            shard_id, id_seq = parse_message_id(text)
        except InvalidArgument:
            return []
        async with self._database.transaction() as connection:
            topic = await find_topic_of_shard(connection, shard_id=shard_id)
        if topic is None or project_of(topic) != project or not await is_permitted(may_read, topic):
            return []
        async with self._database.hot() as hot:
            if await read_message(hot, shard_id=shard_id, id_seq=id_seq) is None:
                return []
        return [Result(ResultKind.MESSAGE, f"{topic}/messages/{text}", "messageId", text)]


def _exact_kinds(query: Query, page: SearchPage) -> Mapping[ResultKind, str]:
    """Returns the kinds that are yet to be searched for the text as an id or name, with the key behind which each
    continues.
    """
    steps = enumerate(STEPS[page.step :], page.step)
    return {
        step.kind: page.after if number == page.step else ""
        for number, step in steps
        if step.is_exact and step.kind in query.scope.names and step.kind is not ResultKind.MESSAGE
    }


async def _search(connection: ResourceConnection, query: Query, progress: _Progress) -> str:
    """Adds results until the page is full or the budget is used up.  Returns the token of the next page, if there
    is one.
    """
    exact = await find_exact(connection, query, _exact_kinds(query, progress.page), limit=progress.capacity + 1)
    for number, step in enumerate(STEPS):
        if number < progress.page.step or step.kind not in query.scope.names or step.kind is ResultKind.MESSAGE:
            continue
        after = progress.page.after if number == progress.page.step else ""
        capacity = progress.capacity
        if step.is_exact:
            found = exact[step.kind]
        else:
            if progress.budget == 0:
                return page_token(number, after)
            compared = await find_containing(
                connection, query, step.kind, after=after, limit=capacity + 1, budget=progress.budget
            )
            found = compared.results
        progress.results += [result for _, result in found[:capacity]]
        if len(found) > capacity:
            return page_token(number, found[capacity - 1][0] if capacity else after)
        if not step.is_exact:
            if compared.examined == progress.budget:
                return page_token(number, compared.last)
            progress.budget -= compared.examined
    return ""
