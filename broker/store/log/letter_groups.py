"""Messages with their dead letters, and what is sent to another topic of them (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from broker.domain.message import NewMessage
from broker.domain.outcome import Outcome
from broker.domain.redrive import ADDED, DONE, Chosen
from broker.store.driver import statements
from broker.store.driver.by_shard import run_by_shard
from broker.store.driver.hot_connection import HotConnection

_READ_BODIES = statements.hot("read_bodies")

_MAX_BYTES = 4_000_000  # that a step sends, or one message that is larger
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Recipient(Protocol):
    """A topic that messages are sent to instead of coming back."""

    name: str

    async def take(self, messages: Sequence[NewMessage]) -> Sequence[int]:
        """Called once; the numbers of those that it takes."""

    async def append(self, connection: HotConnection) -> None:
        """Publish what it has taken, in the transaction that `connection` is in; shard heads come last.

        Raises Aborted.
        """


@dataclass(slots=True)
class Group:
    """A message, and its letters: it has several if it was sought back and failed again.

    `is_open`: it can be acted on (domain/dead_letter_state.py), as far as that is known.
    """

    seq: int
    letters: Sequence[Any]
    is_open: bool = False
    letter_count: int = 0  # with those that were edited, which `letters` are without once that is known
    outcome: Outcome | None = None
    ordering_key: str | None = None  # known once it is decided what becomes of it
    again: Any = None  # the message in its subscription's backlog, from which it is removed before it comes back
    sent: NewMessage | None = None  # what is sent, or put back into the log of another node

    def is_chosen(self, chosen: Chosen) -> bool:
        """Whether a redrive takes it up: who names a message means it also if its letter was dealt with."""
        return self.is_open or (chosen.takes_resolved and bool(self.letters))

    @property
    def goes(self) -> bool:
        """Whether its letters do; also before it is known whether the recipient takes it."""
        return self.outcome in DONE or (self.outcome is None and self.sent is not None)


async def read_groups(
    connection: HotConnection, shard_id: int, groups: Sequence[Group], wanted: Sequence[Group]
) -> int:
    """What is `wanted` of them, from the letters or else from the log; returns how many groups fit into a step."""
    positions = [_position(shard_id, group) for group in wanted]
    bodies = await read_letter_bodies(connection, positions)
    for group, (of_shard, _, seq) in zip(wanted, positions, strict=True):
        if (of_shard, seq) not in bodies:
            group.outcome = Outcome.GONE
        elif bodies[of_shard, seq] is None:
            return groups.index(group)
        else:
            group.sent = bodies[of_shard, seq]
    return len(groups)


async def read_letter_bodies(
    connection: HotConnection, positions: Sequence[tuple[int, datetime, int]]
) -> dict[tuple[int, int], NewMessage | None]:
    """Messages as they were before they were given up, by shard and sequence, of those that are there (by shard,
    publish time and sequence).  None: its bytes are too many for a step.
    """
    if not positions:
        return {}
    shard_ids, times, seqs = map(list, zip(*positions, strict=True))
    asked = {"shard_ids": shard_ids, "publish_times": times, "seqs": seqs, "max_bytes": _MAX_BYTES}
    if connection.is_distributed:  # each counts its own, and has one that is larger
        asked["max_bytes"] = _MAX_BYTES // len({*shard_ids})
    rows = await run_by_shard(connection, _READ_BODIES, asked)
    return {(row.shard_id, row.seq): _as_it_was(row) if row.fits else None for row in rows}


def _as_it_was(row: Any) -> NewMessage:
    attributes = _decode_attributes(row.attributes)
    return NewMessage(
        data=row.data or b"",
        attributes={key: text for key, text in attributes.items() if key not in ADDED},
        ordering_key=row.ordering_key or "",
    )


def _position(shard_id: int, group: Group) -> tuple[int, datetime, int]:
    """Where to read a message."""
    for letter in group.letters:
        if letter.is_there:
            return letter.shard_id, letter.publish_time, letter.seq
    return shard_id, group.letters[0].source_publish_time, group.seq


async def offer(recipient: Recipient, groups: Sequence[Group]) -> None:
    offered = [group for group in groups if group.sent is not None]
    taken = {*await recipient.take([group.sent for group in offered if group.sent is not None])}
    for number, group in enumerate(offered):
        group.outcome = Outcome.SENT if number in taken else Outcome.REFUSED
