"""The log: appending messages.  This module alone writes `messages`."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec
from psycopg.errors import CheckViolation

from broker.domain.errors import InvalidArgument
from broker.domain.message import NewMessage
from broker.store import statements
from broker.store.binary import OIDS, array
from broker.store.hot_connection import Bound, HotConnection

_TAKE_SEQUENCES = statements.hot("take_sequences")
_APPEND_MESSAGES = statements.hot("append_messages")

_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
_JSONB, _BYTEA = 3802, 17
_JSONB_VERSION = b"\x01"

_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EncodedMessages:
    """Messages of one publish request, as elements of PostgreSQL's binary arrays, ready to be joined.

    `ordering_keys` and `attributes` are empty if no message has any: most have none, and PostgreSQL need not read
    what is not there.
    """

    count: int
    ordering_keys: bytes
    attributes: bytes
    data: bytes

    @property
    def size(self) -> int:
        return len(self.ordering_keys) + len(self.attributes) + len(self.data)


class PartitionMissing(Exception):
    """No partition of `messages` covers the publish time; nothing was appended."""


class Appended(NamedTuple):
    """Where messages came to stand: sequences first_seq, first_seq + 1, …, all with one publish time."""

    first_seq: int
    publish_time: datetime


def _element(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


def _attributes_element(attributes: dict[str, str]) -> bytes:
    return _element(_JSONB_VERSION + _encode_json(attributes))


def encode_messages(messages: Sequence[NewMessage]) -> EncodedMessages:
    """Pack messages for `append_messages`.

    Raises InvalidArgument for U+0000 in an attribute or ordering key, which PostgreSQL's text cannot hold.
    """
    attributes = ordering_keys = b""
    if any(m.attributes for m in messages):
        attributes = b"".join([_attributes_element(m.attributes) if m.attributes else _NULL for m in messages])
        if b"\\u0000" in attributes:
            _refuse_nul(messages)
    data = b"".join([part for m in messages for part in (_LENGTH(len(m.data)), m.data)])
    if any(m.ordering_key for m in messages):
        keys = [m.ordering_key.encode() for m in messages]
        if any(b"\0" in key for key in keys):
            raise InvalidArgument("ordering_key has the character U+0000, which cannot be stored.")
        ordering_keys = b"".join([_element(key) if key else _NULL for key in keys])
    return EncodedMessages(len(messages), ordering_keys, attributes, data)


def _refuse_nul(messages: Sequence[NewMessage]) -> None:
    for index, message in enumerate(messages):
        for key, value in message.attributes.items():
            if "\0" in key or "\0" in value:
                raise InvalidArgument(
                    f"messages[{index}].attributes has the character U+0000, which cannot be stored "
                    f"(attribute={key!r})."
                )


def append_statements(shard_id: int, batches: Sequence[EncodedMessages], now: datetime) -> tuple[Bound, Bound]:
    """The two statements that append all batches, in order; the first has no row if the shard is closed."""
    counts = [batch.count for batch in batches]
    count = sum(counts)
    where = {"shard_id": shard_id, "count": count}
    rows = {
        "ordering_keys": _sparse(OIDS["text"], [batch.ordering_keys for batch in batches], counts),
        "attributes": _sparse(_JSONB, [batch.attributes for batch in batches], counts),
        "data": array(_BYTEA, [batch.data for batch in batches], count),
    }
    return (_TAKE_SEQUENCES, {**where, "now": now}), (_APPEND_MESSAGES, {**where, **rows})


def _sparse(element_oid: int, batches: Sequence[bytes], counts: Sequence[int]) -> bytes:
    """An array with NULLs for batches that are empty; if all are, an empty one, which unnest fills with NULLs."""
    if not any(batches):
        return array(element_oid, (), 0)
    filled = (batch or _NULL * count for batch, count in zip(batches, counts, strict=True))
    return array(element_oid, filled, sum(counts))


async def append_messages(
    connection: HotConnection, *, shard_id: int, batches: Sequence[EncodedMessages], now: datetime
) -> Appended | None:
    """Append all batches, in order, to a shard: one round trip, one commit.

    Returns where the first message came to stand, or None if the shard is closed (its topic was deleted).
    Raises PartitionMissing; an OperationalError of psycopg means that the outcome is unknown.
    """
    try:
        taken, _ = await connection.run(*append_statements(shard_id, batches, now))
    except CheckViolation as error:
        raise PartitionMissing from error
    if not taken:
        return None
    [(head, publish_time)] = taken
    return Appended(head - sum(batch.count for batch in batches) + 1, publish_time)
