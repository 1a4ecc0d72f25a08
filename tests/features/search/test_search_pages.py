"""A search reads a bounded number of rows for a page, and its pages skip and repeat nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.features.search import rows
from broker.features.search.result import MAX_EXAMINED, ResultKind, Scope, SearchPage, parse_search_page
from broker.features.search.service import SearchService

TOPICS, SUBSCRIPTIONS = "projects/p/topics", "projects/p/subscriptions"
_ADD_TOPICS = text(
    "INSERT INTO topics (name, created_at) SELECT name, now() FROM unnest(CAST(:names AS text[])) AS name"
)
_ADD_SUBSCRIPTIONS = text("""
    INSERT INTO subscriptions (
        name, topic, topic_id, retain_acked_messages, message_retention, enable_message_ordering, detached,
        created_at, last_active_at
    )
    SELECT name, 'projects/p/topics/other', 1, false, '1 day', false, false, now(), now()
    FROM unnest(CAST(:names AS text[])) AS name
""")


async def _add_topics(database: Database, *names: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(_ADD_TOPICS, {"names": list(names)})


async def _delete_topics(database: Database, *names: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM topics WHERE name = ANY(:names)"), {"names": list(names)})


async def _add_subscriptions(database: Database, *names: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(_ADD_SUBSCRIPTIONS, {"names": list(names)})


async def _nobody_asks(_: str) -> None: ...


class _Search:
    """A search of project `p` by a caller who may find `kinds`."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        *,
        kinds: Sequence[ResultKind] = tuple(ResultKind),
        only: Sequence[str] | None = None,
        max_examined: int = MAX_EXAMINED,
    ) -> None:
        names = dict.fromkeys(kinds, only)
        self._scope = Scope(project="projects/p", names=names, policies_of=["", "topics"])
        self._service = SearchService(database, clock, ResourceTurns(), max_examined=max_examined)

    async def page(self, searched: str, page: SearchPage) -> tuple[list[str], str]:
        """The names that are found, and the token of the next page."""
        found, token = await self._service.search(self._scope, searched, page, may_read=_nobody_asks)
        assert len(found) <= page.size
        return [result.name for result in found], token

    async def all(self, searched: str, *, size: int) -> list[list[str]]:
        """The names by page."""
        names, token = await self.page(searched, SearchPage(size))
        pages = [names]
        while token:
            names, token = await self.page(searched, parse_search_page(size, token))
            pages.append(names)
        return pages


@pytest.fixture
async def clock(database: Database) -> DatabaseClock:
    clock = DatabaseClock(database)
    await clock.synchronise()
    return clock


async def test_a_page_reads_so_many_rows_and_the_next_goes_on_behind_them(
    database: Database, clock: DatabaseClock
) -> None:
    await _add_topics(database, *(f"{TOPICS}/t{number}" for number in range(8)), f"{TOPICS}/x", f"{TOPICS}/xx")
    await _add_subscriptions(
        database, *(f"{SUBSCRIPTIONS}/s{number}" for number in range(3)), f"{SUBSCRIPTIONS}/xs"
    )
    pages = await _Search(database, clock, max_examined=4).all("x", size=100)
    # The exact hit takes nothing of the four rows that a page examines.
    assert pages[:4] == [[f"{TOPICS}/x"], [], [f"{TOPICS}/xx"], [f"{SUBSCRIPTIONS}/xs"]]
    assert pages[4:] in ([], [[]])
    for max_examined in (1, 2, 3, 5, 100):
        for size in (1, 2, 100):
            found = await _Search(database, clock, max_examined=max_examined).all("x", size=size)
            expected = [f"{TOPICS}/x", f"{TOPICS}/xx", f"{SUBSCRIPTIONS}/xs"]
            assert [name for page in found for name in page] == expected, (max_examined, size)


async def test_pages_skip_and_repeat_nothing_while_resources_come_and_go(
    database: Database, clock: DatabaseClock
) -> None:
    stays = [f"{TOPICS}/t{number:03}-x" for number in range(0, 100, 2)]
    goes = [f"{TOPICS}/t{number:03}-x" for number in range(1, 100, 2)]
    await _add_topics(database, *stays, *goes)
    search = _Search(database, clock, max_examined=9)
    names, token = await search.page("x", SearchPage(4))
    found = names
    while token:
        if goes:
            await _delete_topics(database, goes.pop())
            await _add_topics(database, goes.pop(0).replace("-x", "-y-x"))
        names, token = await search.page("x", parse_search_page(4, token))
        found += names
    assert [name for name in found if name in stays] == stays
    assert found == sorted(set(found))


async def test_a_search_among_singly_visible_resources_finds_no_others(
    database: Database, clock: DatabaseClock
) -> None:
    await _add_topics(database, *(f"{TOPICS}/t{number:03}" for number in range(100)))
    only = [f"{TOPICS}/t{number:03}" for number in range(0, 100, 10)]
    search = _Search(database, clock, kinds=[ResultKind.TOPIC], only=only, max_examined=3)
    assert [name for page in await search.all("t0", size=2) for name in page] == only
    assert await search.all("t001", size=2) == [[], [], [], []]


@pytest.mark.parametrize("only", [None, [f"{TOPICS}/x"]], ids=["all", "some"])
async def test_the_names_of_other_projects_are_not_read(database: Database, only: list[str] | None) -> None:
    await _add_topics(database, *(f"projects/q{number}/topics/x" for number in range(5_000)), f"{TOPICS}/x")
    scope = Scope(project="projects/p", names={ResultKind.TOPIC: only}, policies_of=[])
    query = rows.Query(scope, "x", datetime.now(UTC))
    values = rows._values(query, ResultKind.TOPIC) | {"after": "", "limit": 100, "budget": 100, "pattern": "%x%"}
    async with database.transaction() as connection:
        await connection.execute(text("ANALYZE topics"))
        containing = rows._FIND_CONTAINING[ResultKind.TOPIC, only is not None]
        exact = rows._find_exact(query, {ResultKind.TOPIC: "", ResultKind.SUBSCRIPTION: ""}, limit=100)
        for statement, given in (exact, (containing, values)):
            explained = text(f"EXPLAIN {statement.text}").bindparams(*statement._bindparams.values())
            plan = "\n".join(await connection.scalars(explained, given))
            assert "topics_name_key" in plan, plan
            assert "Seq Scan on topics" not in plan, plan
