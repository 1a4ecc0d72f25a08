"""Messages that a subscription is done with become to be delivered once more (G2)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.domain.journal import Author, Event, ranges_of, rows_of
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.journal import journal_statement
from broker.store.log.locked_backlog import LockedBacklog
from broker.store.log.pending_rows import Pending, PendingRows

_LOWER_FIRST_SEQ = statements.hot("lower_first_seq")


def brought_back(
    backlog: LockedBacklog,
    messages: Sequence[Any],
    author: Author,
    answer: str,
    attempt_ids: AttemptIds,
    now: datetime,
) -> list[Bound]:
    """What does it: of messages that the log has, in its order, behind the cursor, and not in any row of the
    subscription; its cursor and the rows of their keys are locked.  `answer`: of the journal's REPLAYED.
    """
    rows = PendingRows(
        shard_id=backlog.shard_id,
        subscription_id=backlog.subscription_id,
        ordered=backlog.cursor.ordered,
        next_seq=backlog.cursor.next_seq,
        redriven=True,
        messages=[Pending(message.seq, message.publish_time, message.ordering_key) for message in messages],
    )
    seqs = ranges_of(message.seq for message in messages)
    told = rows_of(None, backlog.subscription_id, Event.REPLAYED, 0, seqs, author=author, answer=answer)
    writes = [*rows.statements(attempt_ids, now), journal_statement(backlog.shard_id, list(told), now)]
    first_seq = backlog.cursor.first_seq
    if first_seq is not None and messages[0].seq < first_seq:  # as after a seek: else it would never have had it
        where = {"shard_id": backlog.shard_id, "subscription_id": backlog.subscription_id}
        writes.append((_LOWER_FIRST_SEQ, where | {"seq": messages[0].seq}))
    return writes
