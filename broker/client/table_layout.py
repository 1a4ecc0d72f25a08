"""Determines the widths of a table's columns, and which columns are left out on a narrow terminal."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

GAP = 2  # between two columns
_LEAST = 12  # of a column that may be folded or cut


class Column(NamedTuple):
    """`natural`: the width at which nothing of it is folded or cut."""

    name: str
    natural: int
    kind: Literal["whole", "folded", "cut"]

    @property
    def least(self) -> int:
        return self.natural if self.kind == "whole" else min(self.natural, _LEAST)


class Layout(NamedTuple):
    """The widths of the columns that are shown, and the names of those that are left out."""

    widths: dict[str, int]
    left_out: list[str]

    @property
    def width(self) -> int:
        return sum(self.widths.values()) + GAP * (len(self.widths) - 1)


def lay_out(columns: Sequence[Column], minor: Sequence[str], width: int) -> Layout:
    """Leave out `minor` columns, in this order, until the others fit into `width` at their least; share the rest.

    A table whose other columns do not fit is wider than the terminal: an id that is cut or folded is of no use.
    """
    shown, left_out = {column.name: column for column in columns}, []
    for name in minor:
        if _least(shown.values()) <= width:
            break
        if shown.pop(name, None) is not None:
            left_out.append(name)
    widths = {name: column.least for name, column in shown.items()}
    spare = max(width - _least(shown.values()), 0)
    growing = sorted((one for one in shown.values() if one.natural > one.least), key=lambda one: one.natural)
    for number, column in enumerate(growing):
        more = min(column.natural - column.least, spare // (len(growing) - number))
        widths[column.name] += more
        spare -= more
    return Layout(widths, left_out)


def _least(columns: Collection[Column]) -> int:
    least = [column.least for column in columns]
    return sum(least) + GAP * (len(least) - 1)
