"""Message ids: decimal numbers that are unique in an installation and never stored.

A message is identified by shard and sequence; its id is shard_id * 10^15 + sequence.  A shard at 1,000,000 messages
a second would take 31 years to use up its 10^15.  The upper half of them is for scheduled messages, which have
their id before they have a sequence (docs/decisions/0035).
"""

from collections.abc import Sequence
from typing import Protocol

from broker.model.errors import InvalidArgument

SEQUENCES_PER_SHARD = 10**15
_END = 2**63 * SEQUENCES_PER_SHARD  # shards are numbered by 64 bits
FIRST_ID_SEQ = SEQUENCES_PER_SHARD // 2  # of messages that are to come later


class _Numbered(Protocol):
    """A message of the log: its sequence there, and what its id is made of where that is not it."""

    @property
    def seq(self) -> int: ...

    @property
    def id_seq(self) -> int | None: ...


def message_id(shard_id: int, seq: int) -> str:
    """The id of a message."""
    return str(shard_id * SEQUENCES_PER_SHARD + seq)


def id_of(shard_id: int, message: _Numbered) -> str:
    """The id of a message of the log."""
    return message_id(shard_id, message.seq if message.id_seq is None else message.id_seq)


def message_ids(shard_id: int, first_seq: int, count: int) -> list[str]:
    """The ids of `count` consecutive sequences of a shard."""
    first = shard_id * SEQUENCES_PER_SHARD + first_seq
    return list(map(str, range(first, first + count)))


def parse_message_id(text: str, field: str = "messageId") -> tuple[int, int]:
    """The shard and the sequence.  Raises InvalidArgument that names the field, for what no message can have."""
    if not text.isascii() or not text.isdigit() or not SEQUENCES_PER_SHARD < (number := int(text[:40])) < _END:
        raise InvalidArgument(
            f"Invalid value at '{field}': an id is a number that a publish has returned (messageId={text[:100]})."
        )
    return divmod(number, SEQUENCES_PER_SHARD)


def parse_message_ids(texts: Sequence[str], field: str = "messageIds") -> list[tuple[int, int]]:
    """Raises InvalidArgument that names the field and the index."""
    return [parse_message_id(text, f"{field}[{index}]") for index, text in enumerate(texts)]
