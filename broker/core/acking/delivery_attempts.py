"""Acknowledges delivered messages, and changes their ack deadlines (A7).

docs/claim.md lists the other modules that write `delivery_attempts`, and a test checks the list.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.deadline_change import DeadlineChange
from broker.model.sequences import from_bits, to_bits

_ACKNOWLEDGE = statements.hot("acknowledge")
_ACKNOWLEDGE_EXACTLY_ONCE = statements.hot("acknowledge_exactly_once")
_ACKNOWLEDGE_IN_ORDER = statements.hot("acknowledge_in_order")
_MODIFY_ACK_DEADLINE = statements.hot("modify_ack_deadline")
_MODIFY_ORDERED_DEADLINE = statements.hot("modify_ordered_deadline")
_EXHAUST_RETURNED = statements.hot("exhaust_returned")
_MERGE_PARTS = statements.hot("merge_parts")
_RELEASE_ATTEMPTS = statements.hot("release_attempts")
_READ_OPEN_ATTEMPTS = statements.hot("read_open_attempts")

# What a statement has acknowledged in a row, for the record of deliveries: subscription, attempt, the bits that it
# cleared, the row's sequences, its attempt number and, if the row holds an ordering key, those of its messages.
AckedRow = tuple[Any, ...]


def _by_attempt(rows: Iterable[tuple[Any, ...]], shard_id: int) -> dict[tuple[int, int, int], set[int]]:
    """The ordinals that statements return as bits; an attempt may have several rows."""
    ordinals: dict[tuple[int, int, int], set[int]] = {}
    for subscription_id, attempt_id, bits, *_ in rows:
        ordinals.setdefault((shard_id, subscription_id, attempt_id), set()).update(from_bits(bits))
    return ordinals


async def acknowledge(
    connection: HotConnection, *, shard_id: int, acks: MessageNames, acked: list[AckedRow] | None = None
) -> MessageNames:
    """Clear the given messages of one shard's attempts.

    Here and below, `acked` gets the rows that were acknowledged by this call.

    Returns those that were not out under their attempt any more: acked before, redelivered, expired
    and gone, or moved to another part of the attempt while this statement waited for a lock.
    """
    attempts = sorted(acks, key=lambda attempt: (attempt.subscription_id, attempt.attempt_id))
    asked = _masks(shard_id, attempts, acks)
    [rows] = await connection.run((_ACKNOWLEDGE, asked))
    if acked is not None:
        acked += rows
    if {row[:3] for row in rows} == set(
        zip(asked["subscription_ids"], asked["attempt_ids"], asked["masks"], strict=True)
    ):
        return {}  # without examining each message
    return _missing(acks, _by_attempt(rows, shard_id))


def _masks(shard_id: int, attempts: Sequence[AttemptName], asked: MessageNames) -> dict[str, Any]:
    return {
        "shard_id": shard_id,
        "subscription_ids": [attempt.subscription_id for attempt in attempts],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "masks": [to_bits(asked[attempt], attempt.count) for attempt in attempts],
    }


async def acknowledge_exactly_once(
    connection: HotConnection,
    *,
    shard_id: int,
    acks: MessageNames,
    now: datetime,
    acked: list[AckedRow] | None = None,
) -> MessageNames:
    """Acknowledges messages as `acknowledge` does, but only those whose deadline has not passed.

    A repeated ack succeeds.  Returns those that are not acked: redelivered, expired, never delivered under their
    attempt.
    """
    attempts = sorted(acks, key=lambda attempt: (attempt.subscription_id, attempt.attempt_id))
    parameters = {**_masks(shard_id, attempts, acks), "now": now}
    [rows] = await connection.run((_ACKNOWLEDGE_EXACTLY_ONCE, parameters))
    if acked is not None:
        acked += [(*row[:2], *row[3:]) for row in rows if "1" in row[3]]
    return _missing(acks, _by_attempt(rows, shard_id))


@dataclass(frozen=True, slots=True)
class AckedInOrder:
    """The outcome of acks of ordered runs.

    `stale`: not out under their attempt any more.  `out_of_order`: with exactly-once delivery, earlier messages of
    the key are not acked yet.  `due`: subscriptions whose keys may go on.
    """

    stale: MessageNames
    out_of_order: MessageNames
    due: frozenset[int]


async def acknowledge_in_order(
    connection: HotConnection,
    *,
    shard_id: int,
    acks: MessageNames,
    exactly_once: Container[int],
    now: datetime,
    acked: list[AckedRow] | None = None,
) -> AckedInOrder:
    """Acknowledges messages of attempts that hold an ordering key.

    `exactly_once`: the subscriptions with exactly-once delivery.
    """
    attempts = sorted(acks, key=lambda attempt: (attempt.subscription_id, attempt.attempt_id))
    strict = [attempt.subscription_id in exactly_once for attempt in attempts]
    parameters = {**_masks(shard_id, attempts, acks), "exactly_once": strict, "now": now}
    [rows] = await connection.run((_ACKNOWLEDGE_IN_ORDER, parameters))
    if acked is not None:
        acked += [(*row[:2], *row[5:]) for row in rows if "1" in row[5]]
    early = _by_attempt(((*row[:2], row[3]) for row in rows), shard_id)
    out_of_order = {
        attempt: early[key]
        for attempt in attempts
        if early.get(key := (shard_id, attempt.subscription_id, attempt.attempt_id))
    }
    answered = _by_attempt(rows, shard_id)
    for key, ordinals in early.items():
        answered.setdefault(key, set()).update(ordinals)
    due = frozenset(row[0] for row in rows if row[4])
    return AckedInOrder(_missing(acks, answered), out_of_order, due)


async def modify_ordered_deadline(
    connection: HotConnection,
    *,
    shard_id: int,
    changes: Sequence[DeadlineChange],
    jitter: float,
    now: datetime,
) -> MessageNames:
    """Modifies deadlines as `modify_ack_deadline` does, of attempts that hold an ordering key: none is ever split.

    Pass at most one change for each attempt, since one may take back messages that another names.
    """
    parameters = {
        **_deadlines(shard_id, changes),
        "jitter": jitter,
        "now": now,
    }
    [rows] = await connection.run((_MODIFY_ORDERED_DEADLINE, parameters))
    return _missing(_asked(changes), _by_attempt(rows, shard_id))


def _asked(changes: Sequence[DeadlineChange]) -> MessageNames:
    asked: MessageNames = {}
    for change in changes:
        asked.setdefault(change.attempt, set()).update(change.ordinals)
    return asked


def _deadlines(shard_id: int, changes: Sequence[DeadlineChange]) -> dict[str, Any]:
    policies = [change.retry_policy if change.status == "nacked" else None for change in changes]
    return {
        "shard_id": shard_id,
        "subscription_ids": [change.attempt.subscription_id for change in changes],
        "attempt_ids": [change.attempt.attempt_id for change in changes],
        "masks": [to_bits(change.ordinals, change.attempt.count) for change in changes],
        "statuses": [change.status for change in changes],
        "failures": [change.failure for change in changes],
        "next_delivery_ats": [change.next_delivery_at for change in changes],
        "minimum_backoffs": [p and p.minimum_backoff.total_seconds() for p in policies],
        "maximum_backoffs": [p and p.maximum_backoff.total_seconds() for p in policies],
        "exactly_once": [change.exactly_once for change in changes],
    }


async def modify_ack_deadline(
    connection: HotConnection,
    *,
    shard_id: int,
    changes: Sequence[DeadlineChange],
    new_parts: Sequence[int],
    jitter: float,
    now: datetime,
) -> MessageNames:
    """Give messages of one shard's attempts a new time; at most one change a message.

    `new_parts` are fresh ids, far apart, for the rows that are split; `jitter` (0 to 0.1) lengthens the retry delay
    of nacks.  Returns those that were not out any more, as `acknowledge` does; with exactly-once delivery
    also those whose deadline had passed.
    """
    parameters = {
        **_deadlines(shard_id, changes),
        "new_parts": new_parts,
        "jitter": jitter,
        "now": now,
    }
    [rows] = await connection.run((_MODIFY_ACK_DEADLINE, parameters))
    return _missing(_asked(changes), _by_attempt(rows, shard_id))


async def exhaust_returned(
    connection: HotConnection,
    *,
    shard_id: int,
    subscription_id: int,
    messages: Mapping[AttemptName, int],
    failure: str,
    now: datetime,
) -> set[AttemptName]:
    """Hand messages to the dead-letter forwarder that are the first of their ordering keys and wait for their next
    delivery.

    `messages`: the ordinal of each in its attempt.  Returns the attempts whose message is outstanding again, or is
    not the first of its key any more.
    """
    asked = {
        "shard_id": shard_id,
        "subscription_id": subscription_id,
        "attempt_ids": [attempt.attempt_id for attempt in messages],
        "positions": [ordinal + 1 for ordinal in messages.values()],
        "failure": failure,
        "now": now,
    }
    [rows] = await connection.run((_EXHAUST_RETURNED, asked))
    done = {row.attempt_id for row in rows}
    return {attempt for attempt in messages if attempt.attempt_id not in done}


async def merge_parts(
    connection: HotConnection, *, shard_id: int, attempts: Sequence[AttemptName], now: datetime
) -> None:
    """Bring together the parts of one shard's attempts that are alike but for a little time.

    Some messages get a later time: by a sixteenth of what is left of it at most, or by a quarter of a second.
    """
    parameters = {
        "shard_id": shard_id,
        "subscription_ids": [attempt.subscription_id for attempt in attempts],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "now": now,
    }
    await connection.run((_MERGE_PARTS, parameters))


def _missing(asked: MessageNames, answered: dict[tuple[int, int, int], set[int]]) -> MessageNames:
    missing = {}
    for attempt, ordinals in asked.items():
        rest = ordinals - answered.get((attempt.shard_id, attempt.subscription_id, attempt.attempt_id), set())
        if rest:
            missing[attempt] = rest
    return missing


async def release_attempts(
    connection: HotConnection, *, shard_id: int, subscription_id: int, attempt_ids: Sequence[int], now: datetime
) -> None:
    """Make deliveries that were never written to a socket due at once, as if they had not happened."""
    parameters = {
        "shard_id": shard_id,
        "subscription_id": subscription_id,
        "attempt_ids": list(attempt_ids),
        "now": now,
    }
    await connection.run((_RELEASE_ATTEMPTS, parameters))


async def read_open_attempts(
    connection: HotConnection, *, shard_id: int, attempts: Sequence[AttemptName], now: datetime
) -> MessageNames:
    """Reads which messages of a shard's attempts, all of one subscription, are within their ack deadline."""
    parameters = {
        "shard_id": shard_id,
        "subscription_id": attempts[0].subscription_id,
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "now": now,
    }
    [rows] = await connection.run((_READ_OPEN_ATTEMPTS, parameters))
    still_out = _by_attempt(rows, shard_id)
    return {
        attempt: still_out[key]
        for attempt in attempts
        if (key := (shard_id, attempt.subscription_id, attempt.attempt_id)) in still_out
    }
