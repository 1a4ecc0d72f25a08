"""Reads the records of the dead letters of a project, and decides which of them can be acted on."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Numeric,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)

from broker.core.backlog.locked_backlog import lock_backlogs
from broker.db.driver import statements
from broker.db.driver.by_shard import read_sharing, run_by_shard
from broker.db.driver.database import ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.text_conditions import text_condition
from broker.db.schema.tables import dead_letters
from broker.features.dead_letters.dead_letter_groups import Group, judge
from broker.features.dead_letters.dead_letter_state import Resolution
from broker.features.dead_letters.project.query import (
    ORDERS,
    TIME,
    Condition,
    GroupQuery,
    ListQuery,
    Position,
    ProjectDeadLetter,
    ProjectGroup,
)
from broker.features.dead_letters.rows import dead_letter_of
from broker.model.failure_cause import FailureCause
from broker.model.message_id import SEQUENCES_PER_SHARD
from broker.model.topic import DELETED_TOPIC

_MATCH_DEAD_LETTERS = statements.hot("match_dead_letters")
_READ_DEAD_LETTER_MESSAGES = statements.hot("read_dead_letter_messages")

_COMPARE = {"<": lt, "<=": le, ">": gt, ">=": ge}

# As in the index dead_letters_project_idx.
_project = literal_column("split_part(dead_letters.subscription, '/', 2)", Text)
_OF_TRAIT: dict[str, ColumnElement[Any]] = {
    "sourceSubscription": dead_letters.c.subscription,
    "sourceTopic": dead_letters.c.source_topic,
    "reason": dead_letters.c.reason,
    "status": case((dead_letters.c.reason.like("push %"), func.substr(dead_letters.c.reason, 6)), else_=""),
    "fingerprint": dead_letters.c.fingerprint,
    "hour": func.to_char(func.timezone("UTC", dead_letters.c.publish_time), 'YYYY-MM-DD"T"HH24'),
}

# Which dead letters can be acted on (features/dead_letters/dead_letter_state.py), for all records at once: those
# that a subscription of their topic has yet to deliver or to settle, and those that nobody has resolved and that no
# subscription has passed.  It leaves out the filters and the retention of these subscriptions.  The parentheses
# around all of it are needed: SQLAlchemy puts none around a text that it joins to other conditions by AND.
_IS_OPEN = text("""(
    dead_letters.seq >= cursors_of_shards.next_seq
    OR (dead_letters.shard_id, dead_letters.seq) IN (
        SELECT a.shard_id, p.seq
        FROM delivery_attempts AS a
        CROSS JOIN LATERAL (
            SELECT lower(r.seqs) + n.n AS seq
            FROM unnest(a.waiting) AS r (seqs)
            CROSS JOIN LATERAL generate_series(0, upper(r.seqs) - lower(r.seqs) - 1) AS n (n)
            UNION ALL
            SELECT s.seq
            FROM (
                SELECT lower(r.seqs) + n.n AS seq, row_number() OVER (ORDER BY r.seqs, n.n) - 1 AS ordinal
                FROM unnest(a.seqs) AS r (seqs)
                CROSS JOIN LATERAL generate_series(0, upper(r.seqs) - lower(r.seqs) - 1) AS n (n)
            ) AS s
            WHERE CASE
                WHEN a.ordering_key IS NULL THEN get_bit(a.open, s.ordinal::int) = 1
                ELSE s.ordinal >= position(B'1' IN a.open) - 1 AND position(B'1' IN a.open) > 0
            END
        ) AS p
        WHERE a.shard_id IN (
            SELECT d.shard_id FROM dead_letters AS d WHERE split_part(d.subscription, '/', 2) = :project_id
        )
    )
    OR dead_letters.resolution IS NULL
        AND (cursors_of_shards.first_seq IS NULL OR dead_letters.seq < cursors_of_shards.first_seq)
)""")
_CURSORS = (
    text("""
        SELECT shard_id, min(next_seq) AS next_seq, min(coalesce(first_seq, 0)) AS first_seq
        FROM cursors GROUP BY shard_id
    """)
    .columns(shard_id=BigInteger, next_seq=BigInteger, first_seq=BigInteger)
    .subquery("cursors_of_shards")
)


class _Located(NamedTuple):
    """A dead letter whose state is read: its record, and what the log still has of it."""

    shard_id: int
    publish_time: datetime
    seq: int
    source_seq: int
    source_publish_time: datetime
    delivery_attempts: int
    reason: str
    resolution: str | None
    ordering_key: str | None
    expires_at: datetime | None
    record: Any


async def list_records(
    connection: ResourceConnection, query: ListQuery, *, after: Position | None, limit: int
) -> Sequence[Any]:
    """Returns records that meet the conditions, newest first.  Their dead letters may have been resolved."""
    found = _of_project(select(dead_letters), query.project, query.conditions)
    key = (dead_letters.c.publish_time, dead_letters.c.shard_id, dead_letters.c.seq)
    if after is not None:
        found = found.where(tuple_(*key) < (after.publish_time, after.shard_id, after.seq))
    rows = await connection.execute(found.order_by(*(column.desc() for column in key)).limit(limit))
    return list(rows.all())


async def read_open(
    connection: HotConnection,
    records: Sequence[Any],
    *,
    most: int,
    max_bytes: int,
    preview_bytes: int,
    now: datetime,
) -> tuple[Sequence[ProjectDeadLetter], int]:
    """Returns those of the records whose dead letters can be acted on, with their messages.  Locks nothing.

    Returns at most `most` that fit into `max_bytes` with `preview_bytes` of each, or one that is larger, and the
    number of records that were used.
    """
    located = await _locate(connection, records)
    shard_ids = sorted({each.shard_id for each in located})
    backlogs = await lock_backlogs(connection, shard_ids=shard_ids, consumable=(), now=now, locked=False)
    groups = [Group(each.seq, [each]) for each in located]
    topics = await judge(connection, groups, backlogs, now, locked=False)
    is_open = [index for index, group in enumerate(groups) if group.is_open][:most]
    messages = await _read_messages(connection, [located[index] for index in is_open], max_bytes, preview_bytes)
    found: list[ProjectDeadLetter] = []
    for index in is_open:
        each = located[index]
        message = messages.get((each.shard_id, each.seq))
        if message is not None and message.data is None:
            return found, index
        holding = [backlog.name for backlog in backlogs.get(each.shard_id, ()) if backlog.has(each, now)]
        topic = topics.get(each.shard_id)
        found.append(
            ProjectDeadLetter(
                dead_letter=replace(
                    dead_letter_of(each, message, each.record.source_shard_id),
                    topic=DELETED_TOPIC if topic is None else topic.topic,
                    subscriptions=sorted(holding),
                ),
                subscription=each.record.subscription,
                topic=each.record.source_topic,
                cause=FailureCause(each.reason, each.record.response),
                fingerprint=each.record.fingerprint,
            )
        )
    return found, is_open[-1] + 1 if len(found) == most else len(records)


async def list_groups(
    connection: ResourceConnection, query: GroupQuery, *, until: datetime
) -> Sequence[ProjectGroup]:
    """Returns the groups of a page, and one more if there are more."""
    keys = [_OF_TRAIT[trait].label(f"key{number}") for number, trait in enumerate(query.by)]
    count, newest = func.count(), func.max(dead_letters.c.publish_time)
    some_id = func.max(cast(dead_letters.c.shard_id, Numeric) * SEQUENCES_PER_SHARD + dead_letters.c.seq)
    amount: ColumnElement[Any] = count if query.order == ORDERS[0] else newest
    chosen = select(
        *keys,
        count.label("letters"),
        func.min(dead_letters.c.publish_time).label("oldest"),
        newest.label("newest"),
        some_id.label("some_id"),
        func.min(dead_letters.c.reason).label("reason"),
        func.min(dead_letters.c.response).label("response"),
    )
    found = _of_project(chosen, query.project, query.conditions)
    found = found.select_from(dead_letters.outerjoin(_CURSORS, _CURSORS.c.shard_id == dead_letters.c.shard_id))
    found = found.where(dead_letters.c.publish_time <= until, _IS_OPEN)
    expressions = [_OF_TRAIT[trait] for trait in query.by]
    found = found.group_by(*keys).order_by(amount.desc(), *keys).limit(query.size + 1)
    if query.after is not None:
        here = tuple_(*expressions) > tuple(query.after.key)
        found = found.having(or_(amount < query.after.amount, and_(amount == query.after.amount, here)))
    rows = await connection.execute(found, {"project_id": _project_id(query.project)})
    return [
        ProjectGroup(
            key=tuple(row[: len(keys)]),
            count=row.letters,
            oldest=row.oldest,
            newest=row.newest,
            message_id=str(int(row.some_id)),
            cause=FailureCause(row.reason, row.response),
        )
        for row in rows.all()
    ]


def group_position(group: ProjectGroup, query: GroupQuery) -> tuple[int | datetime | str, ...]:
    """Returns the values of a page token that follow `until`."""
    return (group.count if query.order == ORDERS[0] else group.newest, *group.key)


def _of_project(found: Select[Any], project: str, conditions: Sequence[Condition]) -> Select[Any]:
    found = found.where(_project == _project_id(project))
    found = found.where(dead_letters.c.resolution.is_distinct_from(Resolution.EDITED.value))
    return found.where(*map(_meets, conditions))


def _meets(condition: Condition) -> ColumnElement[bool]:
    if condition.field == TIME:
        compared: ColumnElement[bool] = _COMPARE[condition.operator](dead_letters.c.publish_time, condition.value)
        return compared
    return text_condition(_OF_TRAIT[condition.field], condition.operator, str(condition.value))


def _project_id(project: str) -> str:
    return project.removeprefix("projects/")


def _places(rows: Sequence[Any]) -> dict[str, Any]:
    return {
        "shard_ids": [row.shard_id for row in rows],
        "publish_times": [row.publish_time for row in rows],
        "seqs": [row.seq for row in rows],
    }


async def _locate(connection: HotConnection, records: Sequence[Any]) -> list[_Located]:
    asked = _places(records) | {"filter_path": None, "body_path": None}
    messages = {(row.shard_id, row.seq): row for row in await run_by_shard(connection, _MATCH_DEAD_LETTERS, asked)}
    located = []
    for record in records:
        message = messages.get((record.shard_id, record.seq))
        located.append(
            _Located(
                shard_id=record.shard_id,
                publish_time=record.publish_time,
                seq=record.seq,
                source_seq=record.source_seq,
                source_publish_time=record.source_publish_time,
                delivery_attempts=record.delivery_attempts,
                reason=record.reason,
                resolution=record.resolution,
                ordering_key=None if message is None else message.ordering_key,
                expires_at=None if message is None else message.expires_at,
                record=record,
            )
        )
    return located


async def _read_messages(
    connection: HotConnection, located: Sequence[_Located], max_bytes: int, preview_bytes: int
) -> dict[tuple[int, int], Any]:
    if not located:
        return {}
    asked = _places(located) | {"max_bytes": max_bytes, "preview_bytes": preview_bytes}
    rows = await read_sharing(connection, _READ_DEAD_LETTER_MESSAGES, asked)
    return {(row.shard_id, row.seq): row for row in rows}
