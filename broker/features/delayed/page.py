"""Pages of scheduled messages, in the order in which they are due (J1)."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from broker.model.errors import InvalidArgument
from broker.model.page import check_page_size, parse_page_token

MAX_PREVIEW_BYTES = 10_000  # of each message


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """The parameters of a page: at most `size` messages, behind the one that is due at `after`.

    `preview_bytes`: how much of the data of each is shown.
    """

    size: int
    after: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    id_seq: int = 0
    shard_id: int = 0
    preview_bytes: int = 0


def parse_schedule_page(size: int, token: str, *, preview_bytes: int = 0) -> SchedulePage:
    """Raises InvalidArgument for a negative size, a preview that is too long, or a token of another list."""
    size = check_page_size(size)
    if preview_bytes > MAX_PREVIEW_BYTES:
        raise InvalidArgument(
            f"previewBytes must be at most {MAX_PREVIEW_BYTES:,} in a list of scheduled messages "
            f"(previewBytes={preview_bytes})."
        )
    start = parse_page_token(token, datetime, int, int) if token else ()
    return replace(SchedulePage(size, *start), preview_bytes=preview_bytes)
