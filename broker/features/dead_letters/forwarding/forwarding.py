"""Forwards dead letters from a subscription to its dead-letter topic, in one transaction (A5)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from broker.core.log.appending import append_to_shards
from broker.core.log.messages import EncodedMessages
from broker.core.log.packing import Part
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.loop_steps import Turn, at_once
from broker.db.driver.statements import BEGIN, COMMIT
from broker.model.dead_letter import REASON, SOURCE_MESSAGE_ID, UNKNOWN
from broker.model.delivery import StoredMessage
from broker.model.due_attempt import DueAttempt, due_attempt, replacements
from broker.model.failure_cause import FailureCause, stored_cause
from broker.model.journal import Event, Row, ranges_of, rows_of
from broker.model.message import NewMessage
from broker.model.message_id import id_of
from broker.model.sequences import to_multirange
from broker.model.subscription import Subscription

_MARK_EXHAUSTED_ATTEMPTS = statements.hot("mark_exhausted_attempts")
_LOCK_EXHAUSTED_ATTEMPTS = statements.hot("lock_exhausted_attempts")
_RETRY_EXHAUSTED_ATTEMPTS = statements.hot("retry_exhausted_attempts")
_READ_DUE_MESSAGES = statements.hot("read_due_messages")
_INSERT_DEAD_LETTERS = statements.hot("insert_dead_letters")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts")

_MAX_ROWS = 20  # in one transaction, with MAX_DEAD_LETTERS of their messages
MAX_DEAD_LETTERS = 1_000
AT_ONCE = 100  # dead letters that are prepared in one step
_COST = 2_500  # of a dead letter in a step (fairness/loop_turns.py): some 5 µs
_MAX_BYTES = 10_000_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode

# Packs messages for the dead-letter topic.
Prepare = Callable[[Sequence[NewMessage]], Awaitable[Sequence[Part]]]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The result of a batch: the number of messages by reason (model/dead_letter.py), and the shards that have them
    now.

    `more`: more messages may be waiting.
    """

    reasons: Mapping[str, int]
    shard_ids: Sequence[int]
    more: bool

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    """A message to forward to the dead-letter topic, its number of delivery attempts, and their cause."""

    source: StoredMessage
    delivery_attempts: int
    cause: FailureCause


async def retry_exhausted_attempts(
    connection: HotConnection, *, subscription: Subscription, shard_id: int, now: datetime
) -> None:
    """Makes exhausted messages deliverable again, since they have no dead-letter topic."""
    where = {"shard_id": shard_id, "subscription_id": subscription.subscription_id}
    await connection.run((_RETRY_EXHAUSTED_ATTEMPTS, {**where, "now": now}))


async def forward_dead_letters(
    connection: HotConnection,
    *,
    subscription: Subscription,
    shard_id: int,
    prepare: Prepare,
    now: datetime,
    part: int = 1,
    most: int = MAX_DEAD_LETTERS,
    but: Collection[int] = (),
    tried: dict[int, str] | None = None,
    turn: Turn = at_once,
) -> Forwarded:
    """Publishes a batch of exhausted messages on the dead-letter topic, and removes them from the subscription.

    `prepare` packs them for that topic.  `part`: a divisor of the size of the batch, which has at most `most`
    messages.  `turn`: awaited before long steps.  `but`: sequences of messages to skip.  `tried`: filled with the
    sequences and ids of the batch, for a caller that has to find out which of them the database refuses.

    Raises ShardClosed, ShardFrozen (of the dead-letter topic), PartitionMissing.
    """
    most_rows, max_dead_letters = max(_MAX_ROWS // part, 1) + len(but), min(max(MAX_DEAD_LETTERS // part, 1), most)
    try:
        rows = await _lock_exhausted(connection, subscription, shard_id, now, most_rows)
        of_rows = _within(max_dead_letters, rows, but)
        messages = await _read(connection, shard_id, of_rows)
        if tried is not None:
            tried |= {seq: id_of(shard_id, message) for seq, message in messages.items()}
        dead_letters = _dead_letters(of_rows, messages)
        for row, given_up in of_rows:
            _take_out(row, given_up, messages, now)
        dead_letter_shards = await _write(
            connection,
            subscription,
            shard_id,
            rows=rows,
            dead_letters=dead_letters,
            prepare=prepare,
            now=now,
            turn=turn,
        )
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    left = any(row.status == "exhausted" and _given_up(row, but) for row in rows) or len(rows) == most_rows
    return Forwarded(Counter(dead_letter.cause.reason for dead_letter in dead_letters), dead_letter_shards, left)


def _dead_letters(
    of_rows: Sequence[tuple[DueAttempt, list[int]]], messages: Mapping[int, StoredMessage]
) -> list[_DeadLetter]:
    return [
        _DeadLetter(messages[seq], row.attempt_number, stored_cause(row.failure or UNKNOWN))
        for row, given_up in of_rows
        for seq in given_up
        if seq in messages and messages[seq].data is not None
    ]


def _take_out(
    row: DueAttempt, given_up: Sequence[int], messages: Mapping[int, StoredMessage], now: datetime
) -> None:
    """Removes forwarded messages from a row, and those that the log no longer has.  Keeps those that
    were not read.
    """
    row.drop([seq for seq in given_up if seq not in messages or messages[seq].data is not None])
    row.changed = True
    if (
        row.ordering_key is not None and row.status == "exhausted" and not {*given_up} & row.open.keys()
    ):  # the next of the key may go out
        row.status, row.next_delivery_at = "pending", now


async def _lock_exhausted(
    connection: HotConnection, subscription: Subscription, shard_id: int, now: datetime, most: int
) -> list[DueAttempt]:
    where = {"shard_id": shard_id, "subscription_id": subscription.subscription_id}
    assert subscription.dead_letter_policy is not None
    exhausting = {"now": now, "max_attempts": subscription.dead_letter_policy.max_delivery_attempts}
    *_, locked = await connection.run(
        (BEGIN, {}),
        (_MARK_EXHAUSTED_ATTEMPTS, {**where, **exhausting}),
        (_LOCK_EXHAUSTED_ATTEMPTS, {**where, "max_rows": most}),
    )
    return [due_attempt(row, failure=row.failure) for row in locked]


def _given_up(row: DueAttempt, but: Collection[int]) -> list[int]:
    """Returns the sequences of a row to dead-letter: only the first one if it holds an ordering key, else all."""
    given_up = list(row.open)[:1] if row.ordering_key is not None else list(row.open)
    return [seq for seq in given_up if seq not in but]


def _within(most: int, rows: Sequence[DueAttempt], but: Collection[int]) -> list[tuple[DueAttempt, list[int]]]:
    """Returns the first rows with the sequences to dead-letter, up to a total number.  The rest stays exhausted."""
    found: list[tuple[DueAttempt, list[int]]] = []
    for row in rows:
        given_up = _given_up(row, but)[:most]
        if given_up or not row.open:
            most -= len(given_up)
            found.append((row, given_up))
    return found


async def _read(
    connection: HotConnection, shard_id: int, of_rows: Sequence[tuple[DueAttempt, list[int]]]
) -> dict[int, StoredMessage]:
    rows = [row for row, _ in of_rows]
    wanted = {
        "shard_id": shard_id,
        "first_publish_times": [row.first_publish_time for row in rows],
        "last_publish_times": [row.last_publish_time for row in rows],
        "seqs": [to_multirange(given_up) for _, given_up in of_rows],
        "retained_since": _LONG_AGO,
        "filter_path": None,
        "body_path": None,
        "max_bytes": _MAX_BYTES,
    }
    [found] = await connection.run((_READ_DUE_MESSAGES, wanted))
    return {message.seq: message for message in (StoredMessage(*row[:6]) for row in found)}


async def _write(
    connection: HotConnection,
    subscription: Subscription,
    shard_id: int,
    *,
    rows: Iterable[DueAttempt],
    dead_letters: Sequence[_DeadLetter],
    prepare: Prepare,
    now: datetime,
    turn: Turn,
) -> list[int]:
    """Publishes dead letters, updates the rows of their attempts, and commits.  Returns the shards of the dead
    letters.
    """
    writes: list[Bound] = []
    changed = replacements([(subscription.subscription_id, row) for row in rows])
    if changed:
        writes.append((_REPLACE_ATTEMPTS, {"shard_id": shard_id, **changed}))
    if dead_letters:
        writes.append(journal_statement(shard_id, _journal_rows(dead_letters, subscription), now))
    source = _Source(subscription, shard_id)
    batches: dict[int, list[EncodedMessages]] = {}
    stored: dict[int, list[_DeadLetter]] = {}  # by shard, in the order of `batches`
    for some in (dead_letters[at : at + AT_ONCE] for at in range(0, len(dead_letters), AT_ONCE)):
        await turn(sum(_COST + len(dead_letter.source.data) for dead_letter in some))
        for part in await prepare([source.as_published(dead_letter) for dead_letter in some]):
            indexes = range(len(some)) if part.indexes is None else part.indexes
            batches.setdefault(part.shard_id, []).append(part.batch)
            stored.setdefault(part.shard_id, []).extend(some[index] for index in indexes)
    await append_to_shards(connection, before=writes, batches=batches, now=now)
    known = [
        (_INSERT_DEAD_LETTERS, _known_of(of_shard, dead_letter_shard, subscription, shard_id))
        for dead_letter_shard, of_shard in sorted(stored.items())
    ]
    await connection.run(*known, (COMMIT, {}))
    return sorted(stored)


def _journal_rows(dead_letters: Sequence[_DeadLetter], subscription: Subscription) -> list[Row]:
    """Returns journal entries, which are written whether or not the subscription has a journal."""
    alike: dict[tuple[int, str], list[int]] = {}
    for dead_letter in dead_letters:
        alike.setdefault((dead_letter.delivery_attempts, dead_letter.cause.reason), []).append(
            dead_letter.source.seq
        )
    return [
        row
        for (attempt, reason), seqs in alike.items()
        for row in rows_of(
            None,
            subscription.subscription_id,
            Event.DEAD_LETTERED,
            attempt,
            ranges_of(sorted(seqs)),
            answer=reason,
        )
    ]


class _Source:
    """Makes the attributes that describe where a dead letter comes from."""

    def __init__(self, subscription: Subscription, shard_id: int) -> None:
        _, project, _, name = subscription.name.split("/")
        self._shard_id = shard_id
        self._names = {
            "CloudPubSubDeadLetterSourceSubscription": name,
            "CloudPubSubDeadLetterSourceSubscriptionProject": project,
        }
        self._times: dict[datetime, str] = {}  # most are of a few batches

    def as_published(self, dead_letter: _DeadLetter) -> NewMessage:
        """Returns the message to publish, with its data, attributes and ordering key.

        The broker's and Google's attributes of dead letters replace those of the same name.  The result may have
        some more than the 100 attributes that a publish may have.
        """
        message = dead_letter.source
        publish_time = self._times.get(message.publish_time)
        if publish_time is None:
            publish_time = message.publish_time.astimezone(UTC).isoformat(timespec="milliseconds")
            self._times[message.publish_time] = publish_time
        attributes = {
            "CloudPubSubDeadLetterSourceDeliveryCount": str(dead_letter.delivery_attempts),
            **self._names,
            "CloudPubSubDeadLetterSourceTopicPublishTime": publish_time,
            SOURCE_MESSAGE_ID: id_of(self._shard_id, message),
            REASON: dead_letter.cause.reason,
        }
        if message.attributes != "{}":
            attributes = _decode_attributes(message.attributes) | attributes
        return NewMessage(data=message.data, attributes=attributes, ordering_key=message.ordering_key or "")


def _known_of(
    dead_letters: Sequence[_DeadLetter], dead_letter_shard: int, subscription: Subscription, shard_id: int
) -> dict[str, Any]:
    """Returns the parameters of insert_dead_letters.sql."""
    return {
        "shard_id": dead_letter_shard,
        "count": len(dead_letters),
        "source_shard_id": shard_id,
        "source_topic": subscription.topic,
        "subscription_id": subscription.subscription_id,
        "subscription": subscription.name,
        "source_seqs": [dead_letter.source.seq for dead_letter in dead_letters],
        "source_publish_times": [dead_letter.source.publish_time for dead_letter in dead_letters],
        "delivery_attempts": [dead_letter.delivery_attempts for dead_letter in dead_letters],
        "reasons": [dead_letter.cause.reason for dead_letter in dead_letters],
        "responses": [dead_letter.cause.response for dead_letter in dead_letters],
        "fingerprints": [dead_letter.cause.fingerprint for dead_letter in dead_letters],
    }
