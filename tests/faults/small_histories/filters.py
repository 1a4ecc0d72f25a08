"""A history of changed filters."""

from tests.faults.operations_of_one import Filtered
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


class Parts(parts.Parts):
    """A history in which all is well."""

    def __init__(self) -> None:
        super().__init__()
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


def _deliver_what_did_not_match(parts: Parts) -> None:
    parts.first.names.append("c")


def _deliver_by_the_newest_filter(parts: Parts) -> None:
    parts.second.names = ["a", "b", "c", "d"]


def _lose_one_of_an_earlier_filter(parts: Parts) -> None:
    parts.second.names.remove("b")


def _lose_one_of_the_newest_filter(parts: Parts) -> None:
    parts.second.names.remove("d")


PLANTS: Plants = {
    "deliver what did not match": (_deliver_what_did_not_match, {"filtered, not meant"}),
    "deliver by the newest filter": (_deliver_by_the_newest_filter, {"filtered, not meant"}),
    "lose one of an earlier filter": (_lose_one_of_an_earlier_filter, {"filtered, forgotten"}),
    "lose one of the newest filter": (_lose_one_of_the_newest_filter, {"filtered, forgotten"}),
}
