"""The base of the small histories: operations of one actor without a violation, and violations to plant in them."""

from collections.abc import Callable
from typing import Any

from tests.faults.checker import check
from tests.faults.history import History

Plant = Callable[[Any], object]
Plants = dict[str, tuple[Plant, set[str]]]  # with the rules that are violated


class Parts:
    """A history; each module has a subclass of this name, and its PLANTS."""

    def __init__(self) -> None:
        self.history = History()

    def rules(self) -> set[str]:
        """Those that the checker finds violated."""
        return {each.rule for each in check(self.history)}
