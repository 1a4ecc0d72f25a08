"""Rows of events: the topic of a project's events, reported conditions, and events to publish (F4)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import delete, exists, func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert

from broker.core.catalog.push_state_rows import push_state_of
from broker.core.context.event import Event, Kind, Subject
from broker.core.expiration.expiration import NOTICE
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.locks import REPORTING_EVENTS
from broker.db.schema.tables import (
    event_conditions,
    project_settings,
    push_states,
    schedules,
    subscriptions,
    waiting_events,
)
from broker.features.events.event_detection import Found, ReportedCondition, event_json, push_failures_to_report
from broker.features.events.kept_rows import KeptEvent, insert_kept
from broker.model.push_state import PushState

_FIND_CONDITIONS = statements.load("find_conditions")
_LIST_DEAD_LETTER_POLICIES = statements.load("list_dead_letter_policies")
_COUNT_NEW_DEAD_LETTERS = statements.load("count_new_dead_letters")
_OUR_PASS = text("SELECT try_lock(:lock)")

_NO_RESOURCE: tuple[Kind, ...] = ("quota", "disk")  # kinds whose subjects cannot be deleted

LATE = timedelta(seconds=15)  # so long after its publish time a dead letter may be committed
KEPT = timedelta(days=1)  # for which an event that cannot be published is tried


class WaitingEvent(NamedTuple):
    event_id: int
    project: str
    body: Mapping[str, Any]


class WatchedPolicy(NamedTuple):
    """A dead-letter policy of a project that wants events, whose topic may be missing or another project's."""

    project: str
    subscription: str
    topic: str
    has_topic: bool


async def read_event_topic(connection: ResourceConnection, *, project: str) -> str:
    """The topic that a project's events go to; "": none."""
    query = select(project_settings.c.event_topic).where(project_settings.c.project == project)
    return await connection.scalar(query) or ""


async def read_event_topics(connection: ResourceConnection) -> dict[str, str]:
    """Reads the event topics by project, of projects that want events."""
    rows = await connection.execute(select(project_settings.c.project, project_settings.c.event_topic))
    return {row.project: row.event_topic for row in rows if row.event_topic}


async def write_event_topic(connection: ResourceConnection, *, project: str, topic: str, now: datetime) -> None:
    """Sets the event topic from now on; "": no events, and reported conditions are forgotten."""
    if not topic:
        for table in (project_settings, event_conditions, waiting_events):
            await connection.execute(delete(table).where(table.c.project == project))
        return
    values = {"project": project, "event_topic": topic, "dead_letters_until": now}
    await connection.execute(
        pg_insert(project_settings)
        .values(**values)
        .on_conflict_do_update(index_elements=["project"], set_={"event_topic": topic})
    )


async def is_our_pass(connection: ResourceConnection) -> bool:
    """Whether no other process looks just now; none does until the transaction ends."""
    return bool(await connection.scalar(_OUR_PASS, {"lock": REPORTING_EVENTS}))


async def find_conditions(connection: ResourceConnection, *, now: datetime, late: timedelta = LATE) -> list[Found]:
    """Finds the present conditions in projects that want events.

    `late`: how far behind dead letters are counted.
    """
    found = await connection.exec_driver_sql(_FIND_CONDITIONS, {"now": now, "notice": NOTICE})
    conditions = [Found(Subject(row.project, row.kind, row.subject), row.why, begins=row.begins) for row in found]
    for name, state in await _list_failing(connection):
        conditions += push_failures_to_report(name, state.as_of(now))
    dead_letters = await connection.exec_driver_sql(_COUNT_NEW_DEAD_LETTERS, {"until": now - late})
    return conditions + [
        Found(Subject(row.project, "deadLetters", row.subject), row.why, row.amount) for row in dead_letters
    ]


async def _list_failing(connection: ResourceConnection) -> list[tuple[str, PushState]]:
    """Return the push states with reported failures in projects that want events, by subscription.

    Nothing is published about subscriptions of the topic that the events go to.
    """
    project = "projects/" + func.split_part(subscriptions.c.name, "/", 2)
    wants_events = (project_settings.c.project == project) & (project_settings.c.event_topic != "")
    query = (
        select(push_states, subscriptions.c.name)
        .join(subscriptions, subscriptions.c.subscription_id == push_states.c.subscription_id)
        .join(project_settings, wants_events & (project_settings.c.event_topic != subscriptions.c.topic))
        .where(push_states.c.failing_reported | push_states.c.failing_messages.is_not(None))
    )
    return [(row.name, push_state_of(row)) for row in await connection.execute(query)]


async def list_dead_letter_policies(connection: ResourceConnection) -> list[WatchedPolicy]:
    """Lists the policies whose topic is missing, or in another project, in projects that want events."""
    rows = await connection.exec_driver_sql(_LIST_DEAD_LETTER_POLICIES)
    return [WatchedPolicy(row.project, row.subscription, row.topic, row.has_topic) for row in rows]


async def read_reported(connection: ResourceConnection, *, kinds: Collection[Kind]) -> list[ReportedCondition]:
    """Reads the conditions of these kinds that were reported and have not ended."""
    condition = event_conditions.c
    subscription = exists().where(subscriptions.c.name == condition.subject)
    schedule = exists().where(schedules.c.name == condition.subject)
    is_gone = condition.kind.not_in(_NO_RESOURCE) & ~subscription & ~schedule
    query = select(event_conditions, is_gone).where(condition.kind.in_(kinds))
    rows = await connection.execute(query)
    return [
        ReportedCondition(Subject(project, kind, subject), since, found_at, amount, gone)
        for project, kind, subject, since, found_at, amount, gone in rows
    ]


async def write_reported(
    connection: ResourceConnection, *, holds: Sequence[ReportedCondition], over: Iterable[Subject]
) -> None:
    """Writes the conditions that are reported from now on, and deletes those that have ended."""
    for subject in over:
        condition = event_conditions.c
        is_it = (condition.project == subject.project) & (condition.kind == subject.kind)
        await connection.execute(delete(event_conditions).where(is_it, condition.subject == subject.name))
    if not holds:
        return
    rows = [
        {
            "project": reported.subject.project,
            "kind": reported.subject.kind,
            "subject": reported.subject.name,
            "since": reported.since,
            "found_at": reported.found_at,
            "amount": reported.amount,
        }
        for reported in holds
    ]
    written = pg_insert(event_conditions).values(rows)
    changed = {"found_at": written.excluded.found_at, "amount": written.excluded.amount}
    await connection.execute(
        written.on_conflict_do_update(index_elements=["project", "kind", "subject"], set_=changed)
    )


async def insert_events(connection: ResourceConnection, *, events: Sequence[Event]) -> None:
    """Inserts events that wait to be published, and are listed, from the commit on."""
    if events:
        rows = [
            {"project": event.subject.project, "occurred_at": event.occurred_at, "event": event_json(event)}
            for event in events
        ]
        written = insert(waiting_events).values(rows).returning(*waiting_events.c)
        inserted = sorted(await connection.execute(written), key=lambda row: (row.project, row.event_id))
        for project, kept in groupby(inserted, key=lambda row: row.project):
            values = [KeptEvent(row.event_id, row.occurred_at, row.event) for row in kept]
            await insert_kept(connection, project=project, events=values, is_mark=False)


async def tell_event(connection: ResourceConnection, event: Event, *, topic: str) -> None:
    """Insert an event about what is of this topic, if the project wants events, and on another topic."""
    event_topic = await read_event_topic(connection, project=event.subject.project)
    if event_topic and event_topic != topic:
        await insert_events(connection, events=[event])


async def lock_waiting_events(
    connection: ResourceConnection, *, limit: int, without: Collection[str]
) -> list[WaitingEvent]:
    """The oldest, in order, `without` those of these projects; those that another process publishes are passed."""
    others = waiting_events.c.project.not_in(without)
    query = select(waiting_events).where(others).order_by(waiting_events.c.event_id).limit(limit)
    rows = await connection.execute(query.with_for_update(skip_locked=True))
    return [WaitingEvent(row.event_id, row.project, row.event) for row in rows]


async def delete_events(connection: ResourceConnection, *, event_ids: Sequence[int], before: datetime) -> int:
    """Deletes published events, and those that could not be published for long.  Returns how many were too old."""
    event = waiting_events.c
    await connection.execute(delete(waiting_events).where(event.event_id.in_(event_ids)))
    return (await connection.execute(delete(waiting_events).where(event.occurred_at < before))).rowcount
