"""The filter language case by case (A3)."""

import pytest

from broker.core.filtering.evaluate import matches
from broker.core.filtering.parser import parse_filter
from broker.model.errors import InvalidArgument
from tests.core.filtering.cases import ACCEPTED, MESSAGES, REFUSED, Case


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_a_filter_matches_the_messages_that_it_should(case: Case) -> None:
    expression = parse_filter(case.expression)
    assert [i for i, message in enumerate(MESSAGES) if matches(expression, message)] == case.matches


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_not_a_filter_is_refused(case: Case) -> None:
    with pytest.raises(InvalidArgument, match=r"at column \d+: |256"):
        parse_filter(case.expression)
