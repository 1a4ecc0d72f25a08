"""Converts batches of the log to messages."""

from datetime import datetime
from typing import Any

from broker.model.delivery import StoredMessage

_NO_ATTRIBUTES = "{}"


def only_message(row: Any) -> StoredMessage:
    """The message of a batch of one, a row as read_batches.sql has them."""
    [data] = row.data
    attributes = (row.attributes and row.attributes[0]) or _NO_ATTRIBUTES
    if row.shared is not None:
        attributes = _with_shared(attributes, row.shared)
    id_seq = None if row.id_seqs is None else row.id_seqs[0]
    return StoredMessage(row.batch, row.publish_time, row.ordering_key, attributes, data, id_seq)


def stored_messages(
    seq: int,
    publish_time: datetime,
    ordering_key: str | None,
    attributes: list[str | None] | None,
    data: list[bytes],
    shared: str | None,
    id_seqs: list[int] | None = None,
) -> list[StoredMessage]:
    """The messages of a batch; `seq` is the first one's, `shared` what all have besides their own attributes,
    `id_seqs` what their ids are made of (None: their sequences).
    """
    if id_seqs is not None:
        messages = stored_messages(seq, publish_time, ordering_key, attributes, data, shared)
        for message, id_seq in zip(messages, id_seqs, strict=True):
            message.id_seq = id_seq
        return messages
    if shared is not None:
        attributes = [_with_shared(text or _NO_ATTRIBUTES, shared) for text in attributes or [None] * len(data)]
    if attributes is None:
        return [
            StoredMessage(number, publish_time, ordering_key, _NO_ATTRIBUTES, body)
            for number, body in enumerate(data, seq)
        ]
    return [
        StoredMessage(number, publish_time, ordering_key, text or _NO_ATTRIBUTES, body)
        for number, text, body in zip(range(seq, seq + len(data)), attributes, data, strict=True)
    ]


def _with_shared(attributes: str, shared: str) -> str:
    """Joins both in one JSON object."""
    return shared if attributes == _NO_ATTRIBUTES else f"{attributes[:-1]}, {shared[1:]}"
