"""Rows as the columns that a statement takes."""

from collections.abc import Mapping, Sequence
from typing import Any


def by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each name, in the order of the rows, of which there is one at least."""
    return {name: [row[name] for row in rows] for name in rows[0]}
