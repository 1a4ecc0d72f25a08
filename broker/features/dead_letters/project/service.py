"""Lists and groups the dead letters of a project."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.dead_letters.dead_letter_list import MAX_DEAD_LETTERS
from broker.features.dead_letters.project.query import (
    GroupQuery,
    ListQuery,
    Position,
    ProjectDeadLetter,
    ProjectGroup,
)
from broker.features.dead_letters.project.rows import group_position, list_groups, list_records, read_open
from broker.model.delivery import MAX_RESPONSE_BYTES
from broker.model.message_preview import preview_cost
from broker.model.page import page_token

HungUp = Callable[[], Awaitable[None]]
_CHUNK = 500  # records that are read at a time, and
_MORE = 50  # so many more than are wanted, as some have been dealt with


@dataclass(frozen=True, slots=True)
class ProjectDeadLetters:
    """A page of dead letters; `scanned`: the number of records that were read for it."""

    found: Sequence[ProjectDeadLetter]
    scanned: int
    next_page_token: str


@dataclass(frozen=True, slots=True)
class ProjectGroups:
    """A page of groups; dead letters that were made after `until` are not counted."""

    groups: Sequence[ProjectGroup]
    until: datetime
    next_page_token: str


class ProjectDeadLetterService:
    """Lists and groups dead letters.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        """Limits concurrent reads by `turns`, which all expensive reads share."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def list_dead_letters(self, query: ListQuery, *, hung_up: HungUp | None = None) -> ProjectDeadLetters:
        """Returns a page of the dead letters that can be acted on, newest first.

        A page is shorter than requested if the messages are large, or once MAX_DEAD_LETTERS records were read.
        Raises Unavailable (too many such calls).
        """
        found: list[ProjectDeadLetter] = []
        after, scanned, bytes_left = query.after, 0, MAX_RESPONSE_BYTES
        async with self._turns.of(query.project, hung_up=hung_up):
            while len(found) < query.size and scanned < MAX_DEAD_LETTERS and bytes_left > 0:
                most = query.size - len(found)
                limit = min(_CHUNK, most + _MORE)
                async with self._database.transaction() as connection:
                    records = await list_records(connection, query, after=after, limit=limit)
                if not records:
                    return ProjectDeadLetters(found, scanned, "")
                read = partial(
                    read_open,
                    records=records,
                    most=most,
                    max_bytes=bytes_left,
                    preview_bytes=query.preview_bytes,
                    now=self._clock.now(),
                )
                some, consumed = await self._replica_reads.read(read)
                found += some
                scanned += consumed
                if consumed == len(records) < limit:
                    return ProjectDeadLetters(found, scanned, "")
                if consumed:
                    last = records[consumed - 1]
                    after = Position(last.publish_time, last.shard_id, last.seq)
                bytes_left -= sum(_size(each, query.preview_bytes) for each in some)
                if consumed < len(records):
                    break
        assert after is not None
        token = page_token(after.publish_time, after.shard_id, after.seq)
        return ProjectDeadLetters(found, scanned, token)

    async def group_dead_letters(self, query: GroupQuery, *, hung_up: HungUp | None = None) -> ProjectGroups:
        """Returns a page of groups.  All pages count the dead letters that existed when the first page was read.

        Raises Unavailable (too many such calls).
        """
        until = query.until or self._clock.now()
        async with (
            self._turns.of(query.project, hung_up=hung_up),
            self._database.transaction() as connection,
        ):
            groups = await list_groups(connection, query, until=until)
        if len(groups) <= query.size:
            return ProjectGroups(groups, until, "")
        groups = groups[: query.size]
        return ProjectGroups(groups, until, page_token(until, *group_position(groups[-1], query)))


def _size(dead_letter: ProjectDeadLetter, preview_bytes: int) -> int:
    message = dead_letter.dead_letter
    return preview_cost(message.data_size, preview_bytes) + len(message.attributes_text)
