"""The table of calls: no call without each fact, and no two facts of a call that contradict each other."""

from dataclasses import MISSING, fields
from typing import Any

import pytest

from broker.api.grpc.methods import Grpc
from broker.api.permissions import CONSUME
from broker.api.rest.routes import Rest
from broker.api.row import Row
from broker.api.rpc import Audit, Kind, Size
from broker.model.operation_verb import Verb
from tests.architecture.surface import api_operations
from tests.fixtures.registered import ROUTES, RPCS

FACTS: dict[str, Any] = {
    "name": "DoSomething",
    "needs": CONSUME,
    "kind": Kind.CHANGE,
    "size": Size.REQUEST,
    "audit": Audit.CHANGE,
    "starts": None,
    "rest": [],
    "grpc": [],
}
OPERATION = {"$ref": "#/components/responses/Operation"}


def test_a_row_has_these_facts() -> None:
    assert {field.name for field in fields(Row)} - {"target"} == FACTS.keys()
    assert Row(**FACTS).name == "DoSomething"


@pytest.mark.parametrize("fact", sorted(FACTS))
def test_a_call_cannot_be_added_without_a_fact(fact: str) -> None:
    with pytest.raises(TypeError, match=fact):
        Row(**{name: value for name, value in FACTS.items() if name != fact})


@pytest.mark.parametrize("binding", [Rest, Grpc], ids=["REST", "gRPC"])
def test_a_path_or_a_service_cannot_be_added_without_its_facts(binding: Any) -> None:
    optional = {"body"} if binding is Rest else {"unary", "streaming"}
    assert binding._field_defaults.keys() == optional


def test_no_fact_has_a_default_that_nobody_decided() -> None:
    defaulted = {field.name for field in fields(Row) if field.default is not MISSING}
    assert defaulted == {"target"}


def test_no_two_rows_have_a_name_and_every_row_is_served() -> None:
    names = [row.name for row in RPCS]
    assert len(names) == len(set(names))
    assert all(row.rest or row.grpc for row in RPCS)


@pytest.mark.parametrize("row", RPCS, ids=lambda row: row.name)
def test_the_facts_of_a_call_agree(row: Row) -> None:
    assert row.audit.is_change == (row.kind is Kind.CHANGE)
    assert (row.size is Size.SMALL) == (not row.needs.all)
    assert row.starts is None or row.kind is Kind.CHANGE
    assert all((grpc.unary is None) != (grpc.streaming is None) for grpc in row.grpc)
    assert not row.target or (row.rest and row.grpc)  # calls about resources are served over both
    if row.needs.is_open:
        assert not row.rest
        assert not row.needs.all
    if any(rest.method == "GET" for rest in row.rest):
        assert row.kind in (Kind.QUERY, Kind.SCAN, Kind.WAITING)


def test_each_operation_is_started_by_one_call() -> None:
    assert sorted(row.starts for row in RPCS if row.starts is not None) == sorted(Verb)


def test_the_calls_that_start_an_operation_are_specified_to_answer_with_one() -> None:
    answered = {
        route.rpc.name
        for route in ROUTES
        if api_operations()[route.method, route.path]["responses"]["200"] == OPERATION
        and not route.rpc.name.startswith("Operations.")
    }
    # PurgeSubscription starts an operation only if it has a filter.
    assert answered | {"PurgeSubscription"} == {row.name for row in RPCS if row.starts is not None}
