"""Reads the trace contexts of messages that another process has delivered.  Loaded only if tracing is enabled."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.ack_id import AttemptName
from broker.model.sequences import from_multirange

_FIND_TRACES = statements.hot("find_traces")

MAX_ATTEMPTS = 200  # attempts that are read, and messages of each
_MAX_MESSAGES = 1_000


async def find_traces(
    connection: HotConnection, *, shard_id: int, attempts: Sequence[AttemptName]
) -> dict[AttemptName, dict[int, str]]:
    """Attributes (JSON) of those messages of these attempts that carry a trace's context, by their ordinals."""
    some = attempts[:MAX_ATTEMPTS]
    asked = {
        "shard_id": shard_id,
        "subscription_ids": [attempt.subscription_id for attempt in some],
        "attempt_ids": [attempt.attempt_id for attempt in some],
        "max_messages": _MAX_MESSAGES,
    }
    [rows] = await connection.run((_FIND_TRACES, asked))
    names = {(attempt.subscription_id, attempt.attempt_id): attempt for attempt in some}
    found: dict[AttemptName, dict[int, str]] = {attempt: {} for attempt in some}
    for row in rows:
        ordinal = from_multirange(row.seqs).index(row.seq)
        found[names[row.subscription_id, row.attempt_id]][ordinal] = row.attributes
    return found
