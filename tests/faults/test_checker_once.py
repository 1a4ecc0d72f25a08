"""The checks of what is published again, and of what is to come later, find each kind of violation."""

from collections.abc import Callable

import pytest

from tests.faults.checker import check
from tests.faults.history import Cancel, Collected, History, Named
from tests.faults.operation import Came, Outcome


def _history() -> tuple[History, Collected]:
    """The first try of "b" has no answer, "a" is sent twice; "c" and "d" come later, "d" is cancelled."""
    history = History()

    def named(at: float, names: str, *ids: int, outcome: Outcome = "ok") -> None:
        history.add(Named(who="r", began=at, ended=at + 0.1, outcome=outcome, names=list(names), ids=list(ids)))

    named(1, "ab", outcome="unknown")
    named(2, "ab", 1, 2)
    named(3, "a", 1)
    named(4, "cd", 501, 502)
    history.add(Cancel(who="r", began=5, ended=5.1, id=502))
    collected = Collected(
        who="r", began=9, ended=10, came=[Came(1, "a"), Came(2, "b"), Came(501, "c"), Came(1, "a")]
    )
    history.add(collected)
    return history, collected


def _named(history: History, number: int) -> Named:
    operation = history.operations[number]
    assert isinstance(operation, Named)
    return operation


def test_nothing_is_found_where_each_came_once() -> None:
    history, _ = _history()
    assert check(history) == []


def test_what_may_have_been_cancelled_may_come_or_not() -> None:
    for came in ([], [Came(502, "d")]):
        history, collected = _history()
        history.operations[4].outcome = "unknown"
        collected.came += came
        assert check(history) == []


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (lambda h, c: _named(h, 2).ids.__setitem__(0, 3), "two ids"),
        (lambda h, c: _named(h, 3).ids.__setitem__(0, 2), "one id for two"),
        (lambda h, c: c.came.append(Came(3, "a")), "stored twice"),
        (lambda h, c: c.came.append(Came(4, "x")), "invented"),
        (lambda h, c: c.came.__setitem__(1, Came(7, "b")), "changed"),
        (lambda h, c: c.came.pop(1), "lost"),
        (lambda h, c: c.came.append(Came(502, "d")), "after a cancel"),
        (lambda h, c: c.came.__setitem__(2, Came(501, "c", 0.2)), "early"),
        (lambda h, c: c.came.append(Came(503, "c")), "stored twice"),
        (lambda h, c: setattr(h.operations[4], "outcome", "failed"), "lost"),
    ],
)
def test_a_planted_violation_is_found_by_its_rule(plant: Callable[[History, Collected], object], rule: str) -> None:
    history, collected = _history()
    plant(history, collected)
    assert rule in {violation.rule for violation in check(history)}
