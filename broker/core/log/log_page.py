"""Pages of the messages that a topic retains, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.model.page import check_page_size, parse_page_token

_NEWEST = (datetime.max.replace(tzinfo=UTC), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a shard that is read backwards: the messages before this one, the older ones, come next."""

    shard_id: int
    publish_time: datetime = _NEWEST[0]
    seq: int = _NEWEST[1]


@dataclass(frozen=True, slots=True)
class LogPage:
    """The parameters of a page: at most `size` messages, from `before` on.

    `before` None: from the newest message of the first shard on.  `with_data`: whether their data is read as well.
    """

    size: int
    before: LogPosition | None = None
    with_data: bool = False


@dataclass(frozen=True, slots=True)
class MatchedMessage:
    """A message of the log; `attributes` is JSON text, `data` as much of the data as was wanted (None: nothing),
    and `data_size` the length of all of it.  `id_seq`: what its id is made of (None: `seq`).
    """

    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    attributes: str
    data: bytes | None = None
    id_seq: int | None = None
    data_size: int = 0


@dataclass(frozen=True, slots=True)
class FilterTest:
    """The messages that a filter matched of so many (`scanned`); `rest`: where to go on, if anywhere."""

    matched: Sequence[MatchedMessage]
    scanned: int
    rest: LogPosition | None


def parse_log_page(size: int, token: str, *, with_data: bool = False) -> LogPage:
    """Raises InvalidArgument for a negative size, or a token that is not of a LogPosition."""
    size = check_page_size(size)
    before = LogPosition(*parse_page_token(token, int, datetime, int)) if token else None
    return LogPage(size, before, with_data)
