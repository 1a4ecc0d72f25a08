"""How many messages a subscription has not acked, where a filter makes that a question."""

from datetime import UTC, datetime

import pytest

from broker.core.backlog.seeking.position import MAX_SCANNED, Position


@pytest.mark.parametrize(
    ("scanned", "matching", "undelivered", "estimated"),
    [
        (None, None, 40_005, False),
        (MAX_SCANNED - 1, 7, 12, False),
        (MAX_SCANNED, 100, 405, True),
        (MAX_SCANNED, 0, 5, True),
    ],
    ids=["no filter", "all looked at", "a hundredth of the first", "none of the first"],
)
def test_undelivered(scanned: int | None, matching: int | None, undelivered: int, estimated: bool) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    position = Position(1, start, 1, 40_000, 40_000, 5, scanned=scanned, matching=matching)
    assert (position.undelivered, position.is_estimated) == (undelivered, estimated)
