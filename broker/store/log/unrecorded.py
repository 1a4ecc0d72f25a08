"""Dead letters of which nothing is recorded but what their attributes say: release 0.1.0 made them (G2).

Which message each was is not known, so they come back as new ones, in the private shard of the subscription, or are
sent to a topic.  They are found where they wait: in the log of the dead-letter topic, as far as those of its
subscriptions have them that may be consumed.  One step is one transaction, with the locks of a step of a redrive.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.errors import CheckViolation

from broker.domain.errors import Aborted, FailedPrecondition
from broker.domain.journal import Author
from broker.domain.letter_standing import Hold
from broker.domain.log_page import LogPosition
from broker.domain.message import NewMessage
from broker.domain.redrive import ADDED, Chosen, Outcome, Unrecorded
from broker.domain.timestamps import whole_milliseconds
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.letter_groups import Recipient, read_letter_bodies
from broker.store.log.messages import append_statements, encode_messages
from broker.store.log.partitions import PartitionMissing
from broker.store.log.piles import Pile, lock_letters, lock_piles

_FIND_UNRECORDED = statements.hot("find_unrecorded")
_READ_RECORDED_SINCE = statements.hot("read_recorded_since")
_OPEN_SHARD = statements.hot("open_shard")

_MAX_SCANNED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedStep:
    """One step in one shard of the dead-letter topic, behind a position.  `own_paths`: the filter of the
    subscription.  `consumable`, `recipient`: as of a Redrive.
    """

    chosen: Chosen
    letters: Unrecorded
    after: LogPosition
    max_messages: int
    own_paths: tuple[str | None, str | None]
    consumable: Collection[int]
    author: Author
    now: datetime
    recipient: Recipient | None = None


@dataclass(frozen=True, slots=True)
class UnrecordedDone:
    """What became of each letter, by its sequence.  `rest`: where to go on; None: the shard has no more."""

    outcomes: Mapping[int, Outcome]
    rest: LogPosition | None
    woken: Collection[int] = ()


async def read_recorded_since(connection: HotConnection) -> datetime:
    """From when on no letter is made that is not recorded."""
    [rows] = await connection.run((_READ_RECORDED_SINCE, {}))
    since: datetime = rows[0].since
    return since


async def find_unrecorded(
    connection: HotConnection, step: UnrecordedStep, *, most_matched: int, max_scanned: int = _MAX_SCANNED
) -> tuple[list[Any], LogPosition | None]:
    """The next of them, whoever has them; and how far it was read (None: to the end)."""
    asked = {
        "shard_id": step.after.shard_id,
        "after_publish_time": step.after.publish_time,
        "after_seq": step.after.seq,
        "until": step.letters.until,
        "source": step.letters.source_json(),
        "added": list(ADDED),
        "filter_path": step.chosen.filter_path,
        "body_path": step.chosen.body_path,
        "own_filter_path": step.own_paths[0],
        "own_body_path": step.own_paths[1],
        "id_shards": [shard_id for shard_id, _ in step.chosen.ids],
        "id_seqs": [seq for _, seq in step.chosen.ids],
        "max_scanned": max_scanned,
        "max_matched": most_matched + 1,  # one more may be the last scanned
    }
    [rows] = await connection.run((_FIND_UNRECORDED, asked))
    letters = [row for row in rows if row.matches][:most_matched]
    if not rows:
        return [], None
    end = letters[-1] if len(letters) == most_matched else rows[-1]
    return letters, LogPosition(step.after.shard_id, end.publish_time, end.seq)


async def redrive_unrecorded(
    connection: HotConnection, step: UnrecordedStep, attempt_ids: AttemptIds
) -> UnrecordedDone:
    """Within the caller's transaction.  Raises FailedPrecondition (detached), Aborted, Unavailable."""
    letters, rest = await find_unrecorded(connection, step, most_matched=step.max_messages)
    if not letters:
        return UnrecordedDone({}, rest)
    shard_id, owner = step.after.shard_id, step.chosen.subscription_id
    own = (owner, [step.letters.private_shard])
    by_shard = await lock_piles(connection, shard_ids=[shard_id], own=own, consumable=step.consumable, now=step.now)
    if step.recipient is None and not by_shard.get(step.letters.private_shard):
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    piles = by_shard.get(shard_id, [])
    for pile in piles:
        if pile.may_consume:
            await pile.look_ahead(connection, letters)
    await lock_letters(connection, piles, letters)
    outcomes = {letter.seq: outcome for letter in letters if (outcome := _judge(step, piles, letter)) is not None}
    going, cut = await _reached(connection, step, piles, letters, outcomes)
    taken = await _taken(step, going)
    outcomes |= dict.fromkeys({*going}.difference(taken), Outcome.REFUSED)
    writes = list(_takes_out(step, piles, [each for each in letters if each.seq in taken], attempt_ids))
    await _write(connection, step, writes, [taken[seq] for seq in sorted(taken)])
    if cut is not None:  # the next step goes on with this one
        outcomes = {seq: outcome for seq, outcome in outcomes.items() if seq < cut.seq}
        rest = LogPosition(shard_id, cut.publish_time, cut.seq - 1)
    return UnrecordedDone(outcomes, rest, {owner, *(pile.subscription_id for pile in piles)})


def _judge(step: UnrecordedStep, piles: Sequence[Pile], letter: Any) -> Outcome | None:
    """None: nobody has it any more who may be asked."""
    holds = [(pile, pile.holds(letter, step.now)) for pile in piles]
    if any(hold is Hold.OUT and pile.may_consume for pile, hold in holds):
        return Outcome.OUTSTANDING
    held = [pile for pile, hold in holds if hold in (Hold.HELD, Hold.OUT)]
    if not any(pile.may_consume for pile in held):
        return None
    if not all(pile.may_consume for pile in held):
        return Outcome.LEFT_ALONE  # from there it could come once more
    return Outcome.SENT if step.recipient is not None else Outcome.REDRIVEN_AS_NEW


async def _reached(
    connection: HotConnection,
    step: UnrecordedStep,
    piles: Sequence[Pile],
    letters: Sequence[Any],
    outcomes: Mapping[int, Outcome],
) -> tuple[dict[int, NewMessage], Any | None]:
    """What is made of the letters that go in this step, by sequence; and the first that has to wait for the next:
    too much stands before it in a pile, or its bytes are too many.
    """
    going = [letter for letter in letters if outcomes.get(letter.seq) in (Outcome.SENT, Outcome.REDRIVEN_AS_NEW)]
    shard_id = step.after.shard_id
    bodies = await read_letter_bodies(connection, [(shard_id, letter.publish_time, letter.seq) for letter in going])
    end = next((n for n, letter in enumerate(going) if bodies.get((shard_id, letter.seq)) is None), len(going))
    untils = [pile.go_past(going[:end]) for pile in piles if pile.may_consume]
    reached = min((until for until in untils if until is not None), default=None)
    if reached is not None:
        end = sum(letter.seq <= reached for letter in going[:end])
    made = {letter.seq: message for letter in going[:end] if (message := bodies[shard_id, letter.seq]) is not None}
    return made, going[end] if end < len(going) else None


async def _taken(step: UnrecordedStep, going: Mapping[int, NewMessage]) -> dict[int, NewMessage]:
    if step.recipient is None or not going:
        return dict(going)
    seqs = list(going)
    return {seqs[number]: going[seqs[number]] for number in await step.recipient.take(list(going.values()))}


def _takes_out(
    step: UnrecordedStep, piles: Sequence[Pile], letters: Sequence[Any], attempt_ids: AttemptIds
) -> Iterator[Bound]:
    answer = "" if step.recipient is None else step.recipient.name
    for pile in piles:
        if pile.may_consume:
            yield from pile.taken_out(letters, attempt_ids, step.now, step.author, answer)


async def _write(
    connection: HotConnection, step: UnrecordedStep, writes: Sequence[Bound], messages: Sequence[NewMessage]
) -> None:
    if step.recipient is not None:
        if writes:
            await connection.run(*writes)
        await step.recipient.append(connection)
        return
    private = step.letters.private_shard
    if messages:
        requests = [encode_messages([message]) for message in messages]
        writes = [
            *writes,
            (_OPEN_SHARD, {"shard_id": private, "open": True}),
            *append_statements(private, requests, whole_milliseconds(step.now)),
            (_OPEN_SHARD, {"shard_id": private, "open": False}),
        ]
    if not writes:
        return
    try:
        results = await connection.run(*writes)
    except CheckViolation as error:
        raise PartitionMissing from error
    if messages and not results[-3]:
        raise Aborted("The subscription's own shard takes nothing just now.")
