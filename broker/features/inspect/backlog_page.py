"""Pages of the messages that a subscription has, in their states (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.core.backlog.delivery_state import BACKLOG, LISTED, DeliveryState
from broker.features.inspect.topic_page import check_contains
from broker.model.errors import InvalidArgument
from broker.model.message_preview import WHOLE
from broker.model.page import check_page_size, parse_page_token

MAX_SCANNED = 10_000  # messages that one call looks at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BacklogPosition:
    """Where a list goes on, in one shard: first the rows of what was handed out (`in_log` false), from
    (`attempt_id`, `part`) on, in that one behind `seq`, which was published at `publish_time`; then the log, from
    behind `seq` on.
    """

    shard_id: int
    in_log: bool = False
    attempt_id: int = 0
    part: int = 0
    seq: int = -1
    publish_time: datetime = _EPOCH


@dataclass(frozen=True, slots=True)
class BacklogPage:
    """At most `size` messages in one of the `states` that a filter matches, and whose data has `contains` (as
    UTF-8), from a position on (None: from the first shard on).  `preview_bytes`: how much of the data of each is
    shown.
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

    `at`: its ack deadline (OUTSTANDING), or when it is redelivered (RETRYING).
    `attempt_number`: so often it was handed out (0: never), last at `delivered_at` (None: that is not known).
    `held_by`: the number in the id of the message that it waits for (BLOCKED).  `id_seq`: the number in its own id
    (None: `seq`).  `data`: as much of it as is shown; `data_size`: the length of all of it.
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
    """What was found among so many messages (`scanned`); `rest`: where to go on, if anywhere."""

    found: Sequence[BacklogMessage]
    scanned: int
    rest: BacklogPosition | None


def parse_backlog_page(
    size: int, token: str, *, states: str, filter_text: str, contains: str, preview_bytes: int = WHOLE
) -> BacklogPage:
    """`states`: names of states, in either case, with commas between them; "": all.

    Raises InvalidArgument for another name, a negative size, a token of another list, or a text that
    cannot be searched for.
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
