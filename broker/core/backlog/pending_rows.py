"""Rows of pending messages before the cursor, which were never delivered, or which were brought back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT
from broker.model.sequences import to_multirange

_INSERT_PENDING_ATTEMPTS = statements.hot("insert_pending_attempts")
_LOCK_KEYS = statements.hot("lock_keys")
_HOLD_KEYS = statements.hot("hold_keys")

_MAX_SPREAD = 1_000  # sequences that one row spans, though it has few of them


class Pending(NamedTuple):
    """A message that is to wait."""

    seq: int
    publish_time: datetime
    ordering_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRows:
    """The pending messages of one subscription in one shard, whose cursor is locked.

    `next_seq`: the first sequence that the cursor has yet to pass.  `redriven`: the messages are delivered however
    old they are.
    """

    shard_id: int
    subscription_id: int
    ordered: bool
    next_seq: int
    redriven: bool
    messages: Sequence[Pending]

    def statements(self, attempt_ids: AttemptIds, now: datetime) -> Iterator[Bound]:
        """Yields the statements that write the rows.

        Messages without a key share rows, each ordering key has its own.
        """
        plain = [message for message in self.messages if not self._waits(message)]
        keys: dict[str, list[Pending]] = {}
        for message in self.messages:
            if self._waits(message):
                keys.setdefault(message.ordering_key or "", []).append(message)
        runs = list(_runs(plain))
        if runs:
            yield _INSERT_PENDING_ATTEMPTS, self._columns(runs, attempt_ids, now) | {"counts": list(map(len, runs))}
        if keys:
            of_keys = {"ordering_keys": list(keys), "from_seqs": [self.next_seq] * len(keys)}
            where = {"shard_id": self.shard_id, "subscription_ids": [self.subscription_id]}
            yield _LOCK_KEYS, where | {"ordering_keys": list(keys)}
            yield _HOLD_KEYS, self._columns(list(keys.values()), attempt_ids, now) | of_keys

    def _waits(self, message: Pending) -> bool:
        return self.ordered and message.ordering_key is not None

    def _columns(
        self, runs: Sequence[Sequence[Pending]], attempt_ids: AttemptIds, now: datetime
    ) -> dict[str, object]:
        return {
            "shard_id": self.shard_id,
            "now": now,
            "subscription_ids": [self.subscription_id] * len(runs),
            "attempt_ids": list(attempt_ids.take(len(runs), now=now)),
            "seqs": [to_multirange([message.seq for message in run]) for run in runs],
            "first_publish_times": [run[0].publish_time for run in runs],
            "last_publish_times": [run[-1].publish_time for run in runs],
            "redriven": [self.redriven] * len(runs),
        }


def _runs(messages: Sequence[Pending]) -> Iterator[Sequence[Pending]]:
    """Ascending messages, split: a row that spans many others' would have them all read."""
    run: list[Pending] = []
    for message in messages:
        is_far = bool(run) and message.seq - run[0].seq > max(_MAX_SPREAD, 4 * len(run))
        if is_far or len(run) == MAX_MESSAGES_PER_ATTEMPT:
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def multiranges(seqs: Mapping[str, Sequence[int]]) -> list[str]:
    """The sequences of each key."""
    return [to_multirange(sorted(some)) for some in seqs.values()]


def all_of(rows: Sequence[PendingRows], attempt_ids: AttemptIds, now: datetime) -> list[Bound]:
    """Returns the statements that write all of the rows."""
    return list(chain.from_iterable(each.statements(attempt_ids, now) for each in rows))
