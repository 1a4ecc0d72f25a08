"""Replaces a dead letter by a new message in the private shard of its subscription (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.log.appending import ShardClosed, append_to_shards
from broker.core.log.message_ids import id_seqs_of
from broker.core.log.messages import EncodedMessages
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.dead_letter_state import Resolution
from broker.features.dead_letters.discarding.rows import (
    Discard,
    Done,
    discard,
    find_dead_letters,
    journal_writes,
    resolving,
)
from broker.model.errors import Aborted, FailedPrecondition
from broker.model.journal import EDITED_INTO, Event
from broker.model.message_id import message_id

_OPEN_SHARD = statements.hot("open_shard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A replacement.  `asked` names one message or its dead letter; `batch` has the new message, for the private
    shard.
    """

    asked: Discard
    batch: EncodedMessages
    shard_id: int


async def replace_dead_letter(
    connection: HotConnection, wanted: Replacement, attempt_ids: AttemptIds
) -> tuple[int | None, Done]:
    """Removes the dead letters and publishes the new message, within the caller's transaction.

    Returns the sequence of the new message, or None if too many messages precede a dead letter: the cursors have
    then passed some of them.  Raises FailedPrecondition (a subscription that the caller may not consume has the
    dead letter), Aborted, Unavailable.
    """
    done = await discard(connection, replace(wanted.asked, resolves=False), attempt_ids)
    if done.left_alone:
        raise FailedPrecondition(
            f"Its dead letter lies in {', '.join(sorted(done.left_alone))}, which you may not consume."
        )
    if Outcome.WAITING in done.outcomes.values():
        return None, done
    dead_letters = editable(await find_dead_letters(connection, wanted.asked))
    opening = _OPEN_SHARD, {"shard_id": wanted.shard_id, "open": True}
    try:
        answers = await append_to_shards(
            connection, before=[opening], batches={wanted.shard_id: [wanted.batch]}, now=wanted.asked.now
        )
    except ShardClosed:
        dead_letters = []
    if not dead_letters:
        raise Aborted("Somebody else was at this dead letter; try it again.")
    await connection.run((_OPEN_SHARD, {"shard_id": wanted.shard_id, "open": False}))
    [answer] = answers[wanted.shard_id]
    [seq] = id_seqs_of(wanted.batch, answer)
    await _write_down(connection, wanted, dead_letters, (wanted.shard_id, seq))
    return seq, done


def editable(dead_letters: Sequence[Any]) -> list[Any]:
    """Returns the dead letters that were neither discarded nor edited."""
    return [
        dead_letter
        for dead_letter in dead_letters
        if dead_letter.resolution not in (Resolution.DISCARDED, Resolution.EDITED)
    ]


async def _write_down(
    connection: HotConnection, wanted: Replacement, dead_letters: Sequence[Any], successor: tuple[int, int]
) -> None:
    """Records that dead letters were edited, and the message that replaced them.  Raises Aborted."""
    resolves = resolving(connection, dead_letters, Resolution.EDITED, wanted.asked, successor)
    answer = f"{EDITED_INTO}{message_id(*successor)}"
    reported = journal_writes(wanted.asked, dead_letters, Event.WITHDRAWN, answer)
    results = await connection.run(*resolves, *reported)
    if sum(map(len, results[: len(resolves)])) != len(dead_letters):
        raise Aborted("Somebody else was at this dead letter; try it again.")
