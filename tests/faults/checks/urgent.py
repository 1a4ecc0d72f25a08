"""What is urgent comes first: a pull that began after a message was there brings nothing that is less urgent.

That it was there is known of what was answered, is not acked or dead-lettered, and is out with nobody: not with its
only consumer, whose lease is over or was given back, nor with a pull of which nobody knows what became.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from tests.faults.checks.view import LATE_SECONDS, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.history import Fault
from tests.faults.operations_of_one import Hurried

LEAST = 9  # in place of the level of what says none
MAX_ATTEMPTS = 5  # then a message is a dead letter
LEASE_SECONDS = 10.0
_SLACK_SECONDS = 1.0  # between the clocks of several processes, for what falls due


@dataclass
class _Known:
    """`levels` of all that may have been written; `written`: for sure, by which operation; `there`: since when a
    message is there for sure, if nothing is done with it; `handed_out`: how often at most; `acked`: for sure, by
    which operation; `doubt`: until when a pull without an answer may have what it took.
    """

    slack: float
    levels: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    there: dict[str, float] = field(default_factory=dict)
    handed_out: Counter[str] = field(default_factory=Counter)
    received: set[str] = field(default_factory=set)
    acked: dict[str, int] = field(default_factory=dict)
    doubt: float = -inf

    def wrote(self, number: int, done: Hurried) -> Iterator[Violation]:
        self.levels |= dict(zip(done.names, done.levels, strict=True))
        if done.outcome == "ok":
            self.written |= dict.fromkeys(done.names, number)
            self.there |= dict.fromkeys(done.names, done.ended)
        return iter(())

    def took(self, number: int, done: Hurried) -> Iterator[Violation]:
        if done.outcome != "ok":
            self.doubt = done.ended + LATE_SECONDS + LEASE_SECONDS
            self.handed_out.update(self.levels.keys())
            return
        yield from self._came(number, done)
        self.received.update(done.names)
        for name in done.names:
            self.there.pop(name, None)
            self.handed_out[name] += 1
            self._comes_back(name, done.ended + LEASE_SECONDS + self.slack)

    def _came(self, number: int, done: Hurried) -> Iterator[Violation]:
        for name in done.names:
            if name not in self.levels:
                yield violation("invented", f"nobody published {name}", [number])
            elif name in self.acked:
                yield violation("acked, and came again", f"{name} was acked and came", [self.acked[name], number])
        levels = {self.levels.get(name, LEAST) for name in done.names}
        if len(levels) > 1:
            yield violation("several levels", f"one pull brought the levels {sorted(levels)}", [number])
        if done.began < self.doubt:
            return
        for name, since in self.there.items():
            is_there = since < done.began and self.handed_out[name] < MAX_ATTEMPTS
            if is_there and self.levels[name] < max(levels, default=0):
                text = (
                    f"{name} (level {self.levels[name]}) was there, and {done.names} came (levels {sorted(levels)})"
                )
                yield violation("passed by", text, [self.written[name], number])

    def nacked(self, number: int, done: Hurried) -> Iterator[Violation]:
        for name in done.names if done.outcome == "ok" else ():
            self._comes_back(name, done.ended + self.slack)
        return iter(())

    def settled(self, number: int, done: Hurried) -> Iterator[Violation]:
        for name in done.names:
            self.there.pop(name, None)
            if done.outcome == "ok":
                self.acked[name] = number
        return iter(())

    def sought(self, number: int, done: Hurried) -> Iterator[Violation]:
        """All that was written before is there again, whoever had it."""
        self.acked.clear()
        for name in self.written:
            self._comes_back(name, done.ended)
        return iter(())

    def _comes_back(self, name: str, at: float) -> None:
        if name in self.written and self.handed_out[name] < MAX_ATTEMPTS:
            self.there[name] = at

    def dead_letters(self, number: int, done: Hurried) -> Iterator[Violation]:
        for name in {*done.names} - self.levels.keys():
            yield violation("invented", f"nobody published {name}", [number])
        for name in {*done.names}:
            if name in self.levels and self.handed_out[name] < MAX_ATTEMPTS:
                text = f"{name} is a letter after {self.handed_out[name]} deliveries"
                yield violation("given up early", text, [number])
        for name, published in self.written.items():
            if name not in self.received and name not in done.names:
                yield violation("lost", f"{name} never came", [published, number])


def check_urgent(view: View) -> Iterator[Violation]:
    """Leases may last for longer where a clock steps: then only what was never out is known to be there."""
    steps = any(fault.name == "step the clock" for _, fault in all_of(view, Fault))
    known = _Known(slack=inf if steps else _SLACK_SECONDS)
    rules: Mapping[str, Callable[[int, Hurried], Iterator[Violation]]] = {
        "wrote": known.wrote,
        "took": known.took,
        "acked": known.settled,
        "nacked": known.nacked,
        "sought": known.sought,
        "letters": known.dead_letters,
    }
    for number, done in all_of(view, Hurried):
        yield from rules[done.what](number, done)
