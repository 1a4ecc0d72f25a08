"""Pages of the messages that a topic retains, newest first."""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.domain.page import check_page_size, invalid_page_token

_TOKEN = struct.Struct(">qqq")  # shard_id, microseconds of the publish time, seq
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEWEST = (datetime.max.replace(tzinfo=UTC), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a shard has been read: the messages before this one, the older ones, come next."""

    shard_id: int
    publish_time: datetime = _NEWEST[0]
    seq: int = _NEWEST[1]


@dataclass(frozen=True, slots=True)
class LogPage:
    """At most so many messages, from `before` on (None: from the newest message of the first shard on).

    `with_data`: whether their data is wanted as well.
    """

    size: int
    before: LogPosition | None = None
    with_data: bool = False


@dataclass(frozen=True, slots=True)
class MatchedMessage:
    """A message of the log; `attributes` is JSON text, `data` None if it was not wanted.  `id_seq`: what its id is
    made of (None: `seq`).
    """

    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    attributes: str
    data: bytes | None = None
    id_seq: int | None = None


@dataclass(frozen=True, slots=True)
class FilterTest:
    """What a filter matched of so many messages (`scanned`); `rest`: where to go on, if anywhere."""

    matched: Sequence[MatchedMessage]
    scanned: int
    rest: LogPosition | None


def parse_log_page(size: int, token: str, *, with_data: bool = False) -> LogPage:
    """Raises InvalidArgument for a negative size or a token that `log_page_token` never gave."""
    size = check_page_size(size)
    if not token:
        return LogPage(size, with_data=with_data)
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        shard_id, microseconds, seq = _TOKEN.unpack(raw)
        return LogPage(size, LogPosition(shard_id, _EPOCH + microseconds * _MICROSECOND, seq), with_data)
    except (Base64Error, ValueError, OverflowError, struct.error):
        raise invalid_page_token(token) from None


def log_page_token(position: LogPosition) -> str:
    """The token of the page that goes on at `position`."""
    microseconds = (position.publish_time - _EPOCH) // _MICROSECOND
    return urlsafe_b64encode(_TOKEN.pack(position.shard_id, microseconds, position.seq)).decode()
