"""The checks of changed filters find each kind of violation, and nothing in what is right."""

from collections.abc import Callable

import pytest

from tests.faults.checker import check
from tests.faults.history import History
from tests.faults.operations_of_one import Filtered


class Parts:
    """A history in which all is well."""

    def __init__(self) -> None:
        self.history = History()
        self._add("wrote", "a", kind="red")
        self._add("changed", kind="blue")
        self._add("wrote", "b", kind="blue")
        self._add("wrote", "c", kind="red")
        self.first = self._add("took", "ab")
        self._add("changed", kind="red")
        self._add("wrote", "d", kind="red")
        self._add("sought")
        self._add("wrote", "e", kind="blue")
        self.second = self._add("took", "abd")
        self._add("left")

    def _add(self, what: str, names: str = "", kind: str = "") -> Filtered:
        at = float(len(self.history.operations))
        done = Filtered(who="x", began=at, ended=at + 0.5, what=what, names=[*names], kind=kind)  # type: ignore[arg-type]
        self.history.add(done)
        return done

    def rules(self) -> set[str]:
        return {each.rule for each in check(self.history)}


def _deliver_what_did_not_match(parts: Parts) -> None:
    parts.first.names.append("c")


def _deliver_by_the_newest_filter(parts: Parts) -> None:
    parts.second.names = ["a", "b", "c", "d"]


def _lose_one_of_an_earlier_filter(parts: Parts) -> None:
    parts.second.names.remove("b")


def _lose_one_of_the_newest_filter(parts: Parts) -> None:
    parts.second.names.remove("d")


PLANTS: dict[Callable[[Parts], None], str] = {
    _deliver_what_did_not_match: "filtered, not meant",
    _deliver_by_the_newest_filter: "filtered, not meant",
    _lose_one_of_an_earlier_filter: "filtered, forgotten",
    _lose_one_of_the_newest_filter: "filtered, forgotten",
}


def test_nothing_is_found_where_all_is_well() -> None:
    assert Parts().rules() == set()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found(plant: Callable[[Parts], None]) -> None:
    parts = Parts()
    plant(parts)
    assert parts.rules() == {PLANTS[plant]}
