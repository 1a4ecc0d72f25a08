"""What is learned of schemas decides where their messages are checked."""

from broker.features.schemas.schema_costs import LONG_SECONDS, MAX_KNOWN, SLOW_FOR, SchemaCosts

QUICK, LONG = LONG_SECONDS / 10, LONG_SECONDS * 2
FOR = SLOW_FOR.total_seconds()


def test_a_schema_is_proven_by_a_short_check_and_slow_after_a_long_one() -> None:
    costs = SchemaCosts()
    assert not costs.is_proven("p", 1)
    assert not costs.is_slow("p", 1, 0.0)
    costs.learn("p", 1, QUICK, 0.0)
    assert costs.is_proven("p", 1)
    costs.learn("p", 1, LONG, 1.0)
    assert not costs.is_proven("p", 1)
    assert costs.is_slow("p", 1, 1.0)


def test_short_checks_do_not_make_a_slow_schema_proven_before_its_time() -> None:
    costs = SchemaCosts()
    costs.learn("p", 1, LONG, 0.0)
    costs.learn("p", 1, QUICK, FOR - 1)
    assert costs.is_slow("p", 1, FOR - 1)
    assert not costs.is_slow("p", 1, FOR)
    costs.learn("p", 1, QUICK, FOR)
    assert costs.is_proven("p", 1)


def test_a_slow_schema_makes_the_unknown_ones_of_its_project_slow_and_no_others() -> None:
    costs = SchemaCosts()
    costs.learn("p", 1, QUICK, 0.0)
    costs.learn("p", 2, LONG, 0.0)
    assert costs.is_slow("p", 3, 1.0)
    assert costs.is_slow("p", 0, 1.0)
    assert not costs.is_slow("p", 1, 1.0)
    assert not costs.is_slow("q", 2, 1.0)


def test_what_is_not_stored_is_never_proven() -> None:
    costs = SchemaCosts()
    costs.learn("p", 0, QUICK, 0.0)
    assert not costs.is_proven("p", 0)


def test_no_more_than_so_many_are_remembered_and_a_project_that_is_slow_stays_so() -> None:
    costs = SchemaCosts()
    costs.learn("p", 1, LONG, 0.0)
    for number in range(2, MAX_KNOWN + 10):
        costs.learn("q", number, QUICK, 0.0)
    assert not costs.is_proven("q", 2)
    assert costs.is_slow("p", 1, 1.0)
