"""Delivers messages again that a subscription has settled (G2)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.core.backlog.locked_backlog import LockedBacklog
from broker.core.process.attempt_ids import AttemptIds
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.model.journal import Author, Event, ranges_of, rows_of

_LOWER_FIRST_SEQ = statements.hot("lower_first_seq")


def brought_back(
    backlog: LockedBacklog,
    messages: Sequence[Any],
    author: Author,
    answer: str,
    attempt_ids: AttemptIds,
    now: datetime,
) -> list[Bound]:
    """Returns statements for messages that the log has, in its order, that the cursor has passed, and that are in
    no row.  The rows of their ordering keys are locked.  `answer`: of the entry REPLAYED in the journal.
    """
    rows = backlog.pending_rows(messages, redriven=True)
    seqs = ranges_of(message.seq for message in messages)
    attribution = rows_of(None, backlog.subscription_id, Event.REPLAYED, 0, seqs, author=author, answer=answer)
    writes = [*rows.statements(attempt_ids, now), journal_statement(backlog.shard_id, list(attribution), now)]
    first_seq = backlog.cursor.first_seq
    if first_seq is not None and messages[0].seq < first_seq:  # as a seek does, so that it belongs to it
        where = {"shard_id": backlog.shard_id, "subscription_id": backlog.subscription_id}
        writes.append((_LOWER_FIRST_SEQ, where | {"seq": messages[0].seq}))
    return writes
