"""Pages of scheduled messages, in the order in which they are due (J1)."""

from dataclasses import dataclass
from datetime import UTC, datetime

from broker.model.page import check_page_size, parse_page_token


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """The parameters of a page: at most `size` messages, behind the one that is due at `after`."""

    size: int
    after: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    id_seq: int = 0
    shard_id: int = 0


def parse_schedule_page(size: int, token: str) -> SchedulePage:
    """Raises InvalidArgument for a negative size, or a token of another list."""
    size = check_page_size(size)
    return SchedulePage(size, *parse_page_token(token, datetime, int, int)) if token else SchedulePage(size)
