"""Each tick of a schedule is one message: none is missed, and none comes twice."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.history import Ticked


def check_ticks(view: View) -> Iterator[Violation]:
    for number, ticked in all_of(view, Ticked):
        came = sorted({(tick, at, id_) for id_, tick, at in ticked.came})
        times = Counter(at for _, at, _ in came)
        for at, count in times.items():
            if count > 1:
                yield violation("doubled", f"{ticked.schedule} ticked {count} times at {at}", [number])
        for one, other in pairwise(sorted(times)):
            if other - one != ticked.step:
                text = f"{ticked.schedule} has nothing for {other - one} s after {one}"
                yield violation("missed", text, [number])
        if sorted(tick for tick, _, _ in came) != list(range(1, ticked.ticks + 1)):
            text = f"{ticked.schedule} has ticked {ticked.ticks} times, and {len(came)} messages came"
            yield violation("missed", text, [number])
