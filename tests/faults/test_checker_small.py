"""The checks of what one actor does find each kind of violation, and nothing in what is right."""

from types import ModuleType

import pytest

from tests.faults.history import Fault
from tests.faults.operation import Came
from tests.faults.small_histories import carried, filters, later, once, recalls, recoveries, urgent

SMALL = (carried, filters, later, once, recalls, recoveries, urgent)


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.mark.parametrize("module", SMALL, ids=_name)
def test_nothing_is_found_where_all_is_well(module: ModuleType) -> None:
    assert module.Parts().rules() == set()


@pytest.mark.parametrize(
    ("module", "what"),
    [pytest.param(module, what, id=f"{_name(module)}: {what}") for module in SMALL for what in module.PLANTS],
)
def test_a_planted_violation_is_found_by_its_rules(module: ModuleType, what: str) -> None:
    plant, rules = module.PLANTS[what]
    parts = module.Parts()
    plant(parts)
    assert parts.rules() == rules


# --- what is no violation ----------------------------------------------------------------------------------------


def test_what_nobody_knows_may_have_happened_or_not() -> None:
    parts = later.Parts()
    parts.relayed.came = [each for each in parts.relayed.came if each.name not in "FG"]
    parts.relayed.again.append(103)
    later.unanswer(parts)
    parts.last.came[2] = Came(3, "c")
    assert parts.rules() == set()


def test_what_may_have_been_cancelled_may_come_or_not() -> None:
    for came in ([], [Came(502, "d")]):
        parts = once.Parts()
        parts.cancel.outcome = "unknown"
        parts.collected.came += came
        assert parts.rules() == set()


def test_while_nobody_knows_who_has_it_another_one_may_come() -> None:
    parts = urgent.Parts()
    parts.in_doubt.names = ["z0"]
    assert parts.rules() == set()


def test_of_leases_nothing_is_said_where_clocks_step() -> None:
    for pull in ("expired", "again"):
        parts = urgent.Parts()
        urgent.pass_by(parts, getattr(parts, pull))
        assert "passed by" in parts.rules()
        parts.history.add(Fault(who="f", began=1, ended=2, name="step the clock"))
        assert "passed by" not in parts.rules()


def test_of_acks_nothing_is_said_where_clocks_step_further_than_leases_last() -> None:
    parts = later.Parts()
    parts.relayed.again.append(101)
    parts.late.came.append(Came(32, "m"))
    parts.history.add(Fault(who="f", began=1, ended=2, name="step the clock"))
    assert parts.rules() == set()


@pytest.mark.parametrize("killed", ["kill the coordinator", "kill a node"])
def test_where_a_node_is_killed_a_message_of_a_transaction_and_a_tick_come_once_all_the_same(killed: str) -> None:
    parts = later.Parts()
    parts.ticked.came.append((14, 3, 104.0))
    parts.relayed.came.append(Came(29, "A"))
    parts.history.add(Fault(who="f", began=1, ended=2, name=killed))
    assert {"doubled", "stored twice"} <= parts.rules()
