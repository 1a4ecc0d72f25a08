"""A history of urgent messages."""

from tests.faults.checks.urgent import LEAST
from tests.faults.operation import Outcome
from tests.faults.operations_of_one import Hurried
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


class Parts(parts.Parts):
    """A history in which all is well: letters tell levels, from a and b, the most urgent, to what begins with z.

    Of two pulls nobody knows what became; f is given up after five deliveries.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wrote = self.add(1, "wrote", "z0 m0 a0 b0")
        self.first = self.add(2, "took", "a0 b0")
        self.add(3, "acked", "a0")
        self.second = self.add(4, "took", "m0")  # b0 is out
        self.nacked = self.add(5, "nacked", "b0")
        self.again = self.add(7, "took", "b0")
        self.expired = self.add(20, "took", "b0")
        self.add(21, "acked", "b0", "unknown")
        self.third = self.add(22, "took", "m0")
        self.add(23, "acked", "m0")
        self.fourth = self.add(24, "took", "z0")
        self.add(25, "acked", "z0")
        self.add(30, "sought")
        self.sought = self.add(31, "took", "a0 b0")
        self.add(32, "acked", "a0 b0")
        self.add(33, "took", "", "unknown")
        self.add(34, "wrote", "a1")
        self.in_doubt = self.add(35, "took", "m0")
        self.add(36, "acked", "m0")
        self.add(40, "wrote", "a2 m1", "unknown")
        self.fifth = self.add(70.5, "took", "a1")
        self.add(71, "acked", "a1")
        self.add(72, "wrote", "a9")
        for at in (73, 86, 99, 112, 125):
            self.add(at, "took", "a9")
        self.last = self.add(140, "took", "z0")
        self.add(141, "acked", "z0")
        self.dead_letters = self.add(150, "letters", "a9")

    def add(self, at: float, what: str, names: str = "", outcome: Outcome = "ok") -> Hurried:
        each = names.split()
        done = Hurried(
            who="x",
            began=at,
            ended=at + 0.1,
            what=what,  # type: ignore[arg-type]
            names=each,
            outcome=outcome,
            levels=[{"a": 0, "b": 0, "m": 1, "z": LEAST}[name[0]] for name in each] if what == "wrote" else [],
        )
        self.history.add(done)
        return done


def _insert(parts: Parts, after: Hurried, what: str, names: str) -> None:
    """It takes hardly any time."""
    done = parts.add(after.ended + 0.01, what, names)
    done.ended = done.began + 0.01
    operations = parts.history.operations
    operations.insert(operations.index(after) + 1, operations.pop())


def _two_levels_in_one(parts: Parts) -> None:
    parts.first.names = ["a0", "b0", "m0"]
    parts.second.names = []


PLANTS: Plants = {
    "what was there is passed by": (lambda p: _insert(p, p.wrote, "took", "z0"), {"passed by"}),
    "the one level in between is": (lambda p: _insert(p, p.first, "took", "z0"), {"passed by"}),
    "what was nacked is": (lambda p: pass_by(p, p.again), {"passed by"}),
    "what was not settled in time is": (lambda p: pass_by(p, p.expired), {"passed by"}),
    "what was sought back is": (lambda p: pass_by(p, p.sought), {"passed by"}),
    "what is there once nobody may have it is": (lambda p: pass_by(p, p.fifth), {"passed by", "lost"}),
    "one response has two levels": (_two_levels_in_one, {"several levels", "passed by"}),
    "what was acked comes": (
        lambda p: p.second.names.append("a0"),
        {"acked, and came again", "several levels", "passed by"},
    ),
    "nobody published what comes": (
        lambda p: p.first.names.append("b7"),
        {"invented", "several levels", "passed by"},
    ),
    "nobody published what is a letter": (lambda p: p.dead_letters.names.append("b7"), {"invented"}),
    "it is given up early": (lambda p: p.dead_letters.names.append("z0"), {"given up early"}),
    "it never comes": (lambda p: _insert(p, p.fourth, "wrote", "z1"), {"lost"}),
}


def pass_by(parts: Parts, pull: Hurried) -> None:
    """It brings what is less urgent."""
    pull.names = ["z0"]
