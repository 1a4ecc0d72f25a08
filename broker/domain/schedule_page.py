"""Pages of the messages that wait for their time, the first due first (J1)."""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.domain.delay import ScheduledMessage
from broker.domain.page import check_page_size, invalid_page_token

_TOKEN = struct.Struct(">qqq")  # microseconds of the time, id_seq, shard_id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """At most `size` messages, behind the one that is due at `after`."""

    size: int
    after: datetime = _EPOCH
    id_seq: int = 0
    shard_id: int = 0


def parse_schedule_page(size: int, token: str) -> SchedulePage:
    """Raises InvalidArgument for a negative size or a token that `schedule_page_token` never gave."""
    size = check_page_size(size)
    if not token:
        return SchedulePage(size)
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        microseconds, id_seq, shard_id = _TOKEN.unpack(raw)
        return SchedulePage(size, _EPOCH + microseconds * _MICROSECOND, id_seq, shard_id)
    except (Base64Error, ValueError, OverflowError, struct.error):
        raise invalid_page_token(token) from None


def schedule_page_token(last: ScheduledMessage) -> str:
    """The token of the page that goes on behind a message."""
    microseconds = (last.due_at - _EPOCH) // _MICROSECOND
    return urlsafe_b64encode(_TOKEN.pack(microseconds, last.id_seq, last.shard_id)).rstrip(b"=").decode()
