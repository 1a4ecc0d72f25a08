"""Fresh messages of a claim: those that the subscription's cursor has not passed yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic

from broker.domain.delivery import MESSAGE_OVERHEAD, LogMessage, Message, StoredMessage
from broker.store import statements
from broker.store.claim_request import ClaimRequest
from broker.store.hot_connection import Bound, HotConnection
from broker.store.messages import stored_messages

_READ_FRESH_MESSAGES = statements.hot("read_fresh_messages")
_READ_LARGE_MESSAGES = statements.hot("read_large_messages")
_READ_MATCHING_MESSAGES = statements.hot("read_matching_messages")
_READ_UNBLOCKED_MESSAGES = statements.hot("read_unblocked_messages")

_DATA = 4  # its place in a row of read_fresh_messages.sql
MAX_SCANNED = 10_000  # messages that one look of a filtered or ordered claim reads: some 10 ms


@dataclass(frozen=True, slots=True)
class Fresh(Generic[Message]):
    """Messages from the cursor on.  `end` is just past the last one looked at; `all_seen`: there were no more."""

    messages: Sequence[Message]
    end: tuple[datetime, int] | None
    all_seen: bool
    size: int | None = None  # of all messages at most, in bytes; None: not added up

    def position_after(self, taken: int) -> tuple[datetime, int] | None:
        """Just past the last message looked at, or past the last taken if some were left over (None: stay)."""
        if taken == len(self.messages):
            return self.end
        return just_past(self.messages[taken - 1]) if taken else None


NOTHING_FRESH: Fresh[StoredMessage] = Fresh([], None, all_seen=True)


def fresh_statement(request: ClaimRequest) -> Bound:
    """What reads a claim's fresh messages; `fresh_messages` makes sense of its rows."""
    if request.filter_path is None and not request.ordered:
        max_size = request.max_bytes // request.max_messages
        return _READ_FRESH_MESSAGES, {**_window(request), "max_size": max_size}
    statement = _READ_UNBLOCKED_MESSAGES if request.ordered else _READ_MATCHING_MESSAGES
    looking = {
        "max_bytes": request.max_bytes,
        "filter_path": request.filter_path,
        "max_scanned": MAX_SCANNED,
    }
    return statement, {**_window(request), **looking}


async def fresh_messages(
    connection: HotConnection, request: ClaimRequest, rows: Sequence[Sequence[Any]]
) -> Fresh[StoredMessage]:
    """The messages in the rows of `fresh_statement`; large ones are read anew."""
    if request.filter_path is not None or request.ordered:
        return _chosen_messages(rows)
    if rows and rows[0][_DATA] is None:
        large = {**_window(request), "max_bytes": request.max_bytes}
        [rows] = await connection.run((_READ_LARGE_MESSAGES, large))
        return _all(StoredMessage(*row) for row in rows)
    return _of_batches(rows, request.max_messages)


def _window(request: ClaimRequest) -> dict[str, Any]:
    return {
        **request.where,
        "retained_since": request.retained_since,
        "max_messages": request.max_messages,
    }


def _all(found: Iterable[StoredMessage]) -> Fresh[StoredMessage]:
    messages = list(found)
    return Fresh(messages, just_past(messages[-1]) if messages else None, all_seen=True)


def _of_batches(rows: Sequence[Sequence[Any]], max_messages: int) -> Fresh[StoredMessage]:
    """Up to the first batch that came without its data: it is large, and the next claim reads it."""
    messages: list[StoredMessage] = []
    total = 0
    for seq, publish_time, ordering_key, attributes, data, ordinal, size in rows:
        if data is None:
            break
        total += size
        if ordinal > 1:  # the cursor stands within the batch
            data = data[ordinal - 1 :]
            attributes = attributes and attributes[ordinal - 1 :]
        messages += stored_messages(seq, publish_time, ordering_key, attributes, data)
    del messages[max_messages:]
    return replace(_all(messages), size=total + len(messages) * MESSAGE_OVERHEAD)


def _chosen_messages(rows: Sequence[Sequence[Any]]) -> Fresh[StoredMessage]:
    messages = [StoredMessage(*columns) for *columns, matches, _ in rows if matches]
    if not rows:
        return NOTHING_FRESH
    *columns, _, looked_at = rows[-1]
    return Fresh(messages, just_past(StoredMessage(*columns)), all_seen=looked_at < MAX_SCANNED)


def just_past(message: LogMessage) -> tuple[datetime, int]:
    return message.publish_time, message.seq + 1
