"""A history of messages that are published again, and of messages to come later."""

from tests.faults.history import Cancel, Collected, Named
from tests.faults.operation import Came, Outcome
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


class Parts(parts.Parts):
    """The first try of "b" has no answer, "a" is sent twice; "c" and "d" come later, "d" is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._name(1, "ab", outcome="unknown")
        self._name(2, "ab", 1, 2)
        self.again = self._name(3, "a", 1)
        self.later = self._name(4, "cd", 501, 502)
        self.cancel = Cancel(who="r", began=5, ended=5.1, id=502)
        self.history.add(self.cancel)
        came = [Came(1, "a"), Came(2, "b"), Came(501, "c"), Came(1, "a")]
        self.collected = Collected(who="r", began=9, ended=10, came=came)
        self.history.add(self.collected)

    def _name(self, at: float, names: str, *ids: int, outcome: Outcome = "ok") -> Named:
        named = Named(who="r", began=at, ended=at + 0.1, outcome=outcome, names=list(names), ids=list(ids))
        self.history.add(named)
        return named


PLANTS: Plants = {
    "a repeat gets an id of its own": (lambda p: p.again.ids.__setitem__(0, 3), {"two ids"}),
    "another gets the id of one": (lambda p: p.later.ids.__setitem__(0, 2), {"one id for two", "changed"}),
    "a repeat is stored": (lambda p: p.collected.came.append(Came(3, "a")), {"stored twice"}),
    "nobody published what comes": (lambda p: p.collected.came.append(Came(4, "x")), {"invented"}),
    "it comes under another id": (lambda p: p.collected.came.__setitem__(1, Came(7, "b")), {"changed"}),
    "it never comes": (lambda p: p.collected.came.pop(1), {"lost"}),
    "a cancelled one comes": (lambda p: p.collected.came.append(Came(502, "d")), {"after a cancel"}),
    "it comes before its time": (lambda p: p.collected.came.__setitem__(2, Came(501, "c", 0.2)), {"early"}),
    "one that is to come later comes twice": (
        lambda p: p.collected.came.append(Came(503, "c")), {"stored twice"},
    ),
    "it is not cancelled, and never comes": (lambda p: setattr(p.cancel, "outcome", "failed"), {"lost"}),
}  # fmt: skip
