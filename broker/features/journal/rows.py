"""Reads the journal of a subscription as entries are written (F3).

The numbers of entries are in the order in which rows are written, and not in that in which transactions end.  An
entry may be read only once all transactions that may have written an earlier one have ended
(features/journal/journal_tail.py).
"""

from collections.abc import Sequence
from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.features.journal.journal_tail import Ends, Written
from broker.model.errors import Unavailable
from broker.model.journal import Author, Entry, Event
from broker.model.sequences import bounds_of

_READ_JOURNAL_END = statements.hot("read_journal_end")
_READ_TRANSACTIONS = statements.hot("read_transactions")
_LIST_WRITTEN = statements.hot("list_written")
_FIND_WRITTEN_SINCE = statements.hot("find_written_since")

MAX_ROWS = 200  # that a check reads: of 128 ranges each at the most
_MAX_MIXED = 10_000


async def read_ends(connection: HotConnection) -> Ends:
    """Returns how far the journal is written, and which transactions may still write to it.  Raises Unavailable."""
    [end], transactions = await connection.run((_READ_JOURNAL_END, {}), (_READ_TRANSACTIONS, {}))
    if any(of_node.oldest is None for of_node in transactions):
        raise Unavailable("A node of the database went away; try again.")
    return Ends(
        end.number,
        {of_node.node: of_node.oldest for of_node in transactions},
        {of_node.node: of_node.next for of_node in transactions},
    )


async def find_written_since(connection: HotConnection, *, subscription_id: int, since: datetime) -> int | None:
    """Returns the number before the first entry since a time; None: there is none."""
    asked = {"subscription_id": subscription_id, "since": since, "max_mixed": _MAX_MIXED}
    [rows] = await connection.run((_FIND_WRITTEN_SINCE, asked))
    number: int | None = rows[0].number
    return number


async def list_written(
    connection: HotConnection, *, subscription_id: int, after: int, until: int, since: datetime
) -> Sequence[Written]:
    """Returns the first MAX_ROWS entries with numbers after `after` up to `until`, and times not before `since`."""
    asked = {
        "subscription_id": subscription_id,
        "after": after,
        "until": until,
        "since": since,
        "limit": MAX_ROWS,
    }
    [rows] = await connection.run((_LIST_WRITTEN, asked))
    return [
        Written(
            row.number,
            row.shard_id,
            bounds_of(row.seqs),
            Entry(row.time, Event(row.event), row.attempt, Author(row.principal, row.client), row.answer),
        )
        for row in rows
    ]
