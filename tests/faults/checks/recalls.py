"""What a subscription has is known exactly where one alone does things to it, one after the other: what comes is of
that, what was to come has come at the end, and what was counted is what there was (G2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.operations_of_one import Recall

_NOT_MEANT, _FORGOTTEN, _COUNTS = "recalled, not meant", "recalled, forgotten", "recall counts"


@dataclass
class _Has:
    """What is to come for certain (`must`), and what may.  `dropped`: what a purge was the last to be told of, for
    certain, and `perhaps`.
    """

    all: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    must: set[int] = field(default_factory=set)
    may: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    before: tuple[set[int], set[int], set[int]] = (set(), set(), set())  # all, must and may, before a seek


def check_recalls(view: View) -> Iterator[Violation]:
    has = _Has()
    for number, each in enumerate(view.history.operations):
        if isinstance(each, Recall):
            for rule, text in _found(has, each):
                yield violation(rule, f"{each.what}: {text}", [number])
            _follow(has, each)


def _found(has: _Has, each: Recall) -> Iterator[tuple[str, str]]:
    match each.what:
        case "took" if other := {*each.ids} - has.may:
            yield _NOT_MEANT, f"{sorted(other)[:5]} came, and were done with"
        case "left" if has.must:
            yield _FORGOTTEN, f"{sorted(has.must)[:5]} were to come"
        case "resent" if not each.unanswered:
            yield from _resent(has, each)
        case "purged":
            yield from _counted("purged", each, has.must & has.marked, has.may & has.marked)
        case "replayed":
            yield from _replayed(has, each)


def _resent(has: _Has, each: Recall) -> Iterator[tuple[str, str]]:
    for id_ in each.ids:
        outcome = each.outcomes.get(str(id_))
        if (outcome == "resent" and id_ in has.must) or (outcome != "resent" and id_ not in has.may):
            yield _COUNTS, f"{id_} is answered {outcome}"


def _replayed(has: _Has, each: Recall) -> Iterator[tuple[str, str]]:
    least, most = has.all - has.dropped - has.perhaps - has.may, has.all - has.dropped - has.must
    yield from _counted("replayed", each, least, most)
    if not each.unanswered and sum(each.counts.values()) != len(has.all):
        yield _COUNTS, f"{each.counts} of {len(has.all)}"
    if other := each.counts.keys() - {"replayed", "waiting", "outstanding", "discarded"}:
        yield _COUNTS, f"nothing can be {sorted(other)}"


def _counted(name: str, each: Recall, least: set[int], most: set[int]) -> Iterator[tuple[str, str]]:
    if not len(least) <= each.counts.get(name, 0) <= len(most):
        yield _COUNTS, f"{each.counts}, from {len(least)} to {len(most)} {name} were meant"


def _follow(has: _Has, each: Recall) -> None:
    ids = {*each.ids}
    match each.what:
        case "wrote":
            has.all |= ids
            has.must |= ids
            has.may |= ids
            has.marked |= {*each.marked}
        case "acked":
            has.must -= ids
            has.may -= ids
        case "maybe acked":
            has.must -= ids
        case "resent":
            has.must |= ids
            has.may |= ids
            has.dropped -= ids
            has.perhaps -= ids
        case "purged":
            has.dropped |= has.must & has.marked
            has.perhaps |= has.may & has.marked - has.must
            has.must -= has.marked
            has.may -= has.marked
        case "sought":
            has.before = ({*has.all}, {*has.must}, {*has.may})
            has.must, has.may, has.dropped, has.perhaps = {*has.all}, {*has.all}, set(), set()
        case "undone":
            known, must, may = has.before
            has.must, has.may = must | (has.all - known), may | (has.all - known)
        case "replayed":
            has.must |= has.all - has.dropped - has.perhaps
            has.may |= has.all - has.dropped
