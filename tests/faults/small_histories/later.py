"""A history of retractions, messages that expire, schedules and applications' transactions."""

from typing import Any

from tests.faults.history import Bought, Perishable, Relayed, Retract, Ticked, Took, Transaction, Wrote
from tests.faults.operation import Came, Outcome
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


class Parts(parts.Parts):
    """A history in which all is well, and its operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, Any] = {}
        self._withdraw()
        self._perish()
        self._tick()
        self._transact()

    def __getattr__(self, name: str) -> Any:
        return self.by_name[name]

    def _add(self, name: str, kind: Any, at: float, **fields: Any) -> None:
        self.by_name[name] = kind(who="x", began=at, ended=at + 0.1, **fields)
        self.history.add(self.by_name[name])

    def _withdraw(self) -> None:
        """Of five messages the first is out when it is retracted, the second not yet, the third is replaced."""
        self._add("wrote", Wrote, 1, names=list("abcde"), ids=[1, 2, 3, 4, 5])
        self._add("took", Took, 2, came=[Came(1, "a"), Came(4, "d")])
        self._add("retracted", Retract, 3, ids=[1, 2], never_out=[2])
        self._add("unknown", Retract, 4, ids=[3], put="f", outcome="unknown")
        self._add("replaced", Retract, 5, ids=[3], never_out=[3], put="f", put_id=6)
        self._add("again", Retract, 5.5, ids=[3], put="h", put_id=6)
        self._add("refused", Retract, 6, ids=[1], put="g", outcome="failed")
        self._add("last", Took, 7, came=[Came(4, "d"), Came(5, "e"), Came(6, "f")], final=True)

    def _perish(self) -> None:
        """The first is in time and lives for ever after; of the second one is received in time and one is not."""
        self._add("lasting", Perishable, 1, names=["l"], ids=[31])
        self._add("perishable", Perishable, 1, names=list("mn"), ids=[32, 33], ttl=2.0)
        self._add("bought", Bought, 2, came=[Came(32, "m")])
        self._add("late", Bought, 6, came=[Came(31, "l")])
        self._add("dead_letters", Bought, 7, dead_letters=[Came(41, "n")], final=True)

    def _tick(self) -> None:
        came = [(11, 1, 100.0), (12, 2, 102.0), (12, 2, 102.0), (13, 3, 104.0)]
        self._add("ticked", Ticked, 8, schedule="s", step=2.0, ticks=3, came=came)

    def _transact(self) -> None:
        """The first commits and acks; the second is rolled back, and of the third nobody knows."""

        def transaction(name: str, at: float, names: str, acked: int, outcome: Outcome = "ok") -> None:
            self._add(name, Transaction, at, names=list(names), key="k", acked=[acked], outcome=outcome)

        transaction("committed", 11, "ABC", 101)
        transaction("rolled_back", 12, "DE", 102, "failed")
        transaction("in_doubt", 13, "FG", 103, "unknown")
        transaction("behind", 14, "H", 104)
        came = [Came(id_, name) for id_, name in zip((21, 22, 23, 26, 27, 28), "ABCFGH", strict=True)]
        self._add("relayed", Relayed, 15, came=came, nacked=[101, 102, 103, 104, 105], again=[102, 105])


def unanswer(parts: Parts) -> None:
    """Of what was replaced nobody knows."""
    for each in (parts.replaced, parts.again):
        parts.history.operations.remove(each)


def _leave_out(parts: Parts, name: str) -> None:
    parts.relayed.came = [each for each in parts.relayed.came if each.name != name]


def _replace_by_half(parts: Parts) -> None:
    """Of the try of which nobody knows."""
    unanswer(parts)
    parts.took.came.append(Came(6, "f"))
    parts.last.came.append(Came(3, "c"))


PLANTS: Plants = {
    "it was out, and comes again": (lambda p: p.last.came.append(Came(1, "a")), {"retracted, and came"}),
    "it was not out, and comes": (lambda p: p.last.came.append(Came(2, "b")), {"retracted, and came"}),
    "it was out": (lambda p: p.took.came.append(Came(2, "b")), {"told wrongly"}),
    "what was replaced comes": (lambda p: p.last.came.append(Came(3, "c")), {"retracted, and came"}),
    "a try did half of it": (_replace_by_half, {"replaced, and came"}),
    "two stand in its place": (lambda p: setattr(p.replaced, "put_id", 7), {"stored twice", "lost"}),
    "nothing stands in its place": (lambda p: p.last.came.pop(), {"lost"}),
    "a refused one stands there": (lambda p: p.last.came.append(Came(7, "g")), {"invented"}),
    "another was retracted": (lambda p: p.last.came.pop(1), {"lost"}),
    "it came before its time": (lambda p: p.last.came.append(Came(5, "e", 0.5)), {"early"}),
    "it comes after its time": (lambda p: p.late.came.append(Came(32, "m")), {"past its time"}),
    "it never comes, in time or dead": (lambda p: p.dead_letters.dead_letters.pop(), {"lost"}),
    "what lasts is lost": (lambda p: p.late.came.pop(), {"lost"}),
    "two are of one": (lambda p: p.dead_letters.dead_letters.append(Came(42, "n")), {"dead-lettered twice"}),
    "what lasts is dead": (lambda p: p.dead_letters.dead_letters.append(Came(42, "l")), {"expired for nothing"}),
    "it is dead and unpublished": (lambda p: p.dead_letters.dead_letters.append(Came(42, "z")), {"invented"}),
    "a tick is left out": (lambda p: p.ticked.came.pop(0), {"missed"}),
    "one within is left out": (lambda p: p.ticked.came.__delitem__(slice(1, 3)), {"missed"}),
    "the last is left out": (lambda p: setattr(p.ticked, "ticks", 4), {"missed"}),
    "a tick comes twice": (lambda p: p.ticked.came.append((14, 3, 104.0)), {"doubled", "missed"}),
    "one comes as two": (lambda p: p.ticked.came.append((14, 4, 104.0)), {"doubled", "missed"}),
    "a committed one is lost": (lambda p: _leave_out(p, "H"), {"lost"}),
    "one of several is lost": (lambda p: _leave_out(p, "B"), {"lost"}),
    "half of one in doubt comes": (lambda p: _leave_out(p, "F"), {"half a transaction"}),
    "one that was rolled back comes": (lambda p: p.relayed.came.append(Came(24, "D")), {"rolled back, and came"}),
    "one is relayed twice": (lambda p: p.relayed.came.append(Came(29, "A")), {"stored twice", "commit order"}),
    "nobody published it": (lambda p: p.relayed.came.append(Came(29, "X")), {"invented"}),
    "commits change places": (lambda p: p.relayed.came.__setitem__(5, Came(20, "H")), {"commit order"}),
    "so do calls of one": (lambda p: p.relayed.came.__setitem__(0, Came(25, "A")), {"commit order"}),
    "a committed ack does not count": (lambda p: p.relayed.again.append(101), {"acked, and came again"}),
    "an ack that was rolled back counts": (lambda p: p.relayed.again.remove(102), {"forgotten"}),
    "what was never acked is gone": (lambda p: p.relayed.again.remove(105), {"forgotten"}),
}  # fmt: skip
