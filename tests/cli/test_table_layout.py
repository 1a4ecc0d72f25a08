"""How a table's columns share the width of a terminal."""

import pytest

from broker.client.table_layout import Column, lay_out

ID = Column("id", 36, "whole")
COLUMNS = (ID, Column("target", 40, "folded"), Column("state", 9, "whole"), Column("detail", 200, "cut"))
MINOR = ("state", "target")


@pytest.mark.parametrize(
    ("width", "widths", "left_out"),
    [
        (1_000, {"id": 36, "target": 40, "state": 9, "detail": 200}, []),
        (130, {"id": 36, "target": 39, "state": 9, "detail": 40}, []),
        (75, {"id": 36, "target": 12, "state": 9, "detail": 12}, []),
        (74, {"id": 36, "target": 17, "detail": 17}, ["state"]),
        (60, {"id": 36, "detail": 22}, ["state", "target"]),
        (40, {"id": 36, "detail": 12}, ["state", "target"]),  # wider than the terminal rather than without its end
    ],
)
def test_ids_are_whole_and_minor_columns_go_first(width: int, widths: dict[str, int], left_out: list[str]) -> None:
    layout = lay_out(COLUMNS, MINOR, width)
    assert (layout.widths, layout.left_out) == (widths, left_out)
    assert layout.width <= max(width, 50)


def test_a_minor_column_that_is_not_there_is_not_left_out() -> None:
    assert lay_out([ID, Column("detail", 200, "cut")], MINOR, 60).left_out == []
