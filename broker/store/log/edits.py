"""A dead letter is replaced by a new message in a private shard of the subscription that gave it up (G2)."""

from dataclasses import dataclass
from datetime import timedelta

from psycopg.errors import CheckViolation

from broker.domain.discard import Outcome
from broker.domain.errors import Aborted, FailedPrecondition, Unavailable
from broker.domain.message import NewMessage
from broker.store.driver import statements
from broker.store.driver.by_shard import by_shard
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.discard import Discard, Done, discard, find_letters
from broker.store.log.messages import append_statements, encode_messages

_OPEN_SHARD = statements.hot("open_shard")
_FORGET_LETTERS = statements.hot("forget_letters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """`asked` names one message, or its letter; `shard_id` is the private shard."""

    asked: Discard
    message: NewMessage
    shard_id: int


async def replace_letter(
    connection: HotConnection, wanted: Replacement, attempt_ids: AttemptIds
) -> tuple[int | None, Done]:
    """Within the caller's transaction, which commits all of it: the letters go, the new message is there.

    Returns its sequence; None: too much stands before a letter, the cursors have gone a part of the way.  Raises
    FailedPrecondition (it lies where the caller may not take it from), Aborted, Unavailable.
    """
    done = await discard(connection, wanted.asked, attempt_ids)
    if done.left_alone:
        raise FailedPrecondition(
            f"Its dead letter lies in {', '.join(sorted(done.left_alone))}, which you may not consume."
        )
    if Outcome.WAITING in done.outcomes.values():
        return None, done
    letters = await find_letters(connection, wanted.asked)
    forgotten = {
        "shard_ids": [letter.shard_id for letter in letters],
        "publish_times": [letter.publish_time for letter in letters],
        "seqs": [letter.seq for letter in letters],
    }
    now = wanted.asked.now
    published_at = now - timedelta(microseconds=now.microsecond % 1000)
    try:
        *gone, _, taken, _, _ = await connection.run(
            *by_shard(connection, _FORGET_LETTERS, forgotten),
            (_OPEN_SHARD, {"shard_id": wanted.shard_id, "open": True}),
            *append_statements(wanted.shard_id, [encode_messages([wanted.message])], published_at),
            (_OPEN_SHARD, {"shard_id": wanted.shard_id, "open": False}),
        )
    except CheckViolation as error:
        raise Unavailable("There is no partition for messages of this time yet.") from error
    count = sum(map(len, gone))
    if not count or count != len(letters) or not taken:
        raise Aborted("Somebody else was at this dead letter; try it again.")
    [(head, _)] = taken
    return int(head), done
