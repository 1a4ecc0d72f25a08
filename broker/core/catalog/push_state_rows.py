"""Rows of `push_states`: the state of each push subscription's endpoint, and pauses.

If `retry_at` is in the future when it is written, nothing is sent before that time.  If it is in the past, it is
the time since which the endpoint has been waiting for slots.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from broker.core.catalog.cursor_locks import lock_cursors_of
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.text import storable
from broker.db.schema.tables import cursors, held_claims, push_states
from broker.model.push_state import FailingMessage, FailureRun, LateAnswers, PushState

_WRITE_PUSH_STATES = statements.load("write_push_states")
_PAUSE_PUSHES = statements.load("pause_pushes")


async def write_push_states(connection: ResourceConnection, *, states: Sequence[PushState]) -> int:
    """Write down the states of at most one a subscription.  Returns how many were written: not those of
    subscriptions that are deleted, or pushed elsewhere.

    A state with a reason pauses; one without leaves a pause as it is.
    """
    columns: dict[str, list[Any]] = {
        "subscription_ids": [s.subscription_id for s in states],
        "breakers": [s.breaker for s in states],
        "changed_at": [s.changed_at for s in states],
        "consecutive_failures": [s.consecutive_failures for s in states],
        "windows": [s.window for s in states],
        "outstanding_requests": [s.outstanding_requests for s in states],
        "retry_at": [s.retry_at or s.waits_since for s in states],
        "paused_reasons": [storable(s.paused_reason) for s in states],
        "endpoints": [s.endpoint and storable(s.endpoint) for s in states],
        "failing_messages": [_messages_json(s.failing_messages) for s in states],
        "late_answers": [_late_json(s.late_answers) for s in states],
        **_failure_columns([s.failures for s in states]),
    }
    return (await connection.exec_driver_sql(_WRITE_PUSH_STATES, columns)).rowcount


async def pause_pushes(
    connection: ResourceConnection,
    *,
    subscription_id: int,
    reason: str,
    now: datetime,
    by: str = "",
    endpoint: str | None = None,
    unless_paused: bool = False,
) -> bool:
    """Pauses pushes for a subscription until `resume_pushes`.

    A later reason replaces an earlier one, or `unless_paused` does not.  `reason` is not ""; `by`: who wants it
    ("": the broker, or it is not known).  `endpoint`: only if messages are still pushed there, since the answer of
    one endpoint must not stop another that has taken its place.  Returns whether it is paused now, for this reason:
    not if the subscription is deleted either.
    """
    pause = {
        "subscription_id": subscription_id,
        "reason": storable(reason),
        "now": now,
        "by": storable(by) or None,
        "endpoint": endpoint and storable(endpoint),
        "unless_paused": unless_paused,
    }
    return (await connection.exec_driver_sql(_PAUSE_PUSHES, pause)).rowcount > 0


async def resume_pushes(connection: ResourceConnection, *, subscription_id: int, reason: str | None = None) -> bool:
    """End a pause; with a `reason` only the one that began for it.  Returns whether there was one."""
    is_it = push_states.c.paused_reason != "" if reason is None else push_states.c.paused_reason == reason
    resumed = await connection.execute(
        update(push_states)
        .where(push_states.c.subscription_id == subscription_id, is_it)
        .values(paused_reason="", paused_at=None, paused_by=None)
    )
    claims = 0 if reason is not None else await _let_claims(connection, subscription_id, paused=False)
    return resumed.rowcount + claims > 0


async def pause_claims(connection: ResourceConnection, *, subscription_id: int) -> None:
    """Stops the claims for a subscription in all processes, from the commit until `resume_pushes`.

    Waits for claims under way.
    """
    await _let_claims(connection, subscription_id, paused=True)


async def _let_claims(connection: ResourceConnection, subscription_id: int, *, paused: bool) -> int:
    await lock_cursors_of(connection, subscription_id)
    of_it = (cursors.c.subscription_id == subscription_id) & (cursors.c.paused != paused)
    changed = await connection.execute(update(cursors).where(of_it).values(paused=paused))
    await connection.execute(delete(held_claims).where(held_claims.c.subscription_id == subscription_id))
    if paused:
        await connection.execute(insert(held_claims).values(subscription_id=subscription_id))
    return changed.rowcount


async def forget_push_state(connection: ResourceConnection, *, subscription_id: int) -> None:
    """Forget a pause and all that was known of an endpoint: there is another now, or none."""
    await _let_claims(connection, subscription_id, paused=False)
    await connection.execute(delete(push_states).where(push_states.c.subscription_id == subscription_id))


async def read_push_state(connection: ResourceConnection, *, subscription_id: int) -> PushState | None:
    """Returns the push state that was last written for a subscription; None if there is none yet."""
    return (await read_push_states(connection, subscription_ids=[subscription_id])).get(subscription_id)


async def read_push_states(
    connection: ResourceConnection, *, subscription_ids: Sequence[int]
) -> dict[int, PushState]:
    """Returns the push states that were last written, by subscription; subscriptions without one are left out."""
    query = select(push_states).where(push_states.c.subscription_id.in_(subscription_ids))
    return {row.subscription_id: push_state_of(row) for row in await connection.execute(query)}


def _failure_columns(runs: Sequence[FailureRun | None]) -> dict[str, list[Any]]:
    return {
        "failing_since": [run and run.since for run in runs],
        "failed_requests": [run and run.requests for run in runs],
        "last_statuses": [run and run.status for run in runs],
        "last_reasons": [run and storable(run.reason) for run in runs],
        "failing_reported": [run and run.is_reported for run in runs],
    }


def _failures(row: Row[Any]) -> FailureRun | None:
    if row.failing_since is None:
        return None
    return FailureRun(
        since=row.failing_since,
        requests=row.failed_requests,
        status=row.last_status,
        reason=row.last_reason,
        is_reported=row.failing_reported,
    )


def _messages_json(messages: Sequence[FailingMessage]) -> str | None:
    if not messages:
        return None
    fields = [asdict(m) | {"since": m.since.isoformat(), "reason": storable(m.reason)} for m in messages]
    return json.dumps(fields)


def _messages(fields: list[dict[str, Any]] | None) -> tuple[FailingMessage, ...]:
    return tuple(FailingMessage(**one | {"since": datetime.fromisoformat(one["since"])}) for one in fields or ())


def _late_json(late: LateAnswers | None) -> str | None:
    if late is None:
        return None
    seconds = late.latency.total_seconds()
    times = {"since": late.since.isoformat(), "last_at": late.last_at.isoformat()}
    return json.dumps({**times, "requests": late.requests, "seconds": seconds})


def _late(fields: dict[str, Any] | None) -> LateAnswers | None:
    if fields is None:
        return None
    return LateAnswers(
        since=datetime.fromisoformat(fields["since"]),
        last_at=datetime.fromisoformat(fields["last_at"]),
        requests=fields["requests"],
        latency=timedelta(seconds=fields["seconds"]),
    )


def push_state_of(row: Row[Any]) -> PushState:
    """Return the state that a row of `push_states` has."""
    was_past = row.retry_at is not None and row.retry_at < row.changed_at
    return PushState(
        subscription_id=row.subscription_id,
        breaker=row.breaker,
        changed_at=row.changed_at,
        consecutive_failures=row.consecutive_failures,
        window=row.window_size,
        outstanding_requests=row.outstanding_requests,
        retry_at=None if was_past else row.retry_at,
        waits_since=row.retry_at if was_past else None,
        paused_reason=row.paused_reason,
        failures=_failures(row),
        failing_messages=_messages(row.failing_messages),
        late_answers=_late(row.late_answers),
    )
