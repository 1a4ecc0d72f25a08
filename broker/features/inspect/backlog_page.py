"""Pages of the backlog of a subscription: its unsettled messages and their states (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.core.backlog.delivery_state import BACKLOG, LISTED, DeliveryState
from broker.features.inspect.topic_page import check_contains
from broker.model.errors import InvalidArgument
from broker.model.message_preview import WHOLE
from broker.model.page import check_page_size, parse_page_token

MAX_SCANNED = 10_000  # messages that one call reads

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BacklogPosition:
    """The position in one shard at which the next page of a backlog begins.

    The rows of delivered messages come first (`in_log` is false): the list continues with the row (`attempt_id`,
    `part`), after its message `seq`, which was published at `publish_time`.  Then comes the log, after `seq`.
    """

    shard_id: int
    in_log: bool = False
    attempt_id: int = 0
    part: int = 0
    seq: int = -1
    publish_time: datetime = _EPOCH


@dataclass(frozen=True, slots=True)
class BacklogPage:
    """Options of a page of a backlog.

    `size`: the maximum number of messages.  `states`: the states to list.  `filter`: a filter of messages ("":
    all).  `contains`: a text that the data must contain, as UTF-8.  `start`: the position at which the page begins
    (None: the first shard).  `preview_bytes`: the number of bytes of each message's data that are shown.
    """

    size: int
    states: frozenset[DeliveryState] = BACKLOG
    filter: str = ""
    contains: str = ""
    start: BacklogPosition | None = None
    preview_bytes: int = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMessage:
    """A message of the backlog and its state.

    `at`: the ack deadline (OUTSTANDING) or the time of redelivery (RETRYING).  `attempt_number`: the number of
    deliveries so far.  `delivered_at`: the time of the last one (None: unknown).  `held_by`: the number in the id
    of the message that blocks this one (BLOCKED).  `id_seq`: the number in this message's id (None: `seq`).
    `data`: the part that is shown.  `data_size`: the size of all data in bytes.
    """

    shard_id: int
    seq: int
    publish_time: datetime = _EPOCH
    ordering_key: str | None = None
    attributes: str = "{}"
    data: bytes = b""
    data_size: int = 0
    state: DeliveryState
    attempt_number: int = 0
    delivered_at: datetime | None = None
    at: datetime | None = None
    held_by: int | None = None
    id_seq: int | None = None


@dataclass(frozen=True, slots=True)
class BacklogList:
    """A page of a backlog.

    `scanned`: the number of messages that were read for it.  `rest`: the position of the next page (None: there is
    none).
    """

    found: Sequence[BacklogMessage]
    scanned: int
    rest: BacklogPosition | None


def parse_backlog_page(
    size: int, token: str, *, states: str, filter_text: str, contains: str, preview_bytes: int = WHOLE
) -> BacklogPage:
    """Returns the options of a page.  `states`: names of states in either case, separated by commas; "" means all.

    Raises InvalidArgument for an unknown state, a negative size, a token of another list, or a text that cannot be
    searched for.
    """
    size = check_page_size(size)
    check_contains(contains)
    wanted = frozenset(map(_state, states.split(","))) if states else BACKLOG
    start = BacklogPosition(*parse_page_token(token, int, bool, int, int, int, datetime)) if token else None
    return BacklogPage(size, wanted, filter_text, contains, start, preview_bytes)


def _state(name: str) -> DeliveryState:
    for state in LISTED:
        if state == name.strip().upper():
            return state
    raise InvalidArgument(f"state must be one or several of {', '.join(LISTED)} (state={name[:100]}).")
