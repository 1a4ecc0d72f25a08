"""The table of routes and the specification describe the same API."""

from typing import Any

from broker.api.pages.health import health_routes
from broker.api.pages.metrics import metrics_routes
from broker.api.pages.openapi import openapi_routes
from broker.api.rest.errors import HTTP_STATUS
from broker.api.rest.resource_handler import WHOLE
from broker.model.preview import SAFEGUARDS
from tests.architecture.surface import api_operations, operations, specification
from tests.fixtures.registered import ROUTES

ROUTE = {(route.method, route.path): route for route in ROUTES}

WITH_RANGES = {"GetMessageData"}  # calls that take the header Range


def test_no_two_routes_share_a_method_and_a_path() -> None:
    assert len(ROUTE) == len(ROUTES)


def test_every_route_is_specified_and_every_specified_operation_is_routed() -> None:
    assert api_operations().keys() == ROUTE.keys()


def test_the_paths_beside_the_api_are_specified() -> None:
    async def check_ready() -> None:
        pass

    async def scrape(*_: object) -> tuple[bytes, str]:
        raise NotImplementedError

    async def projects() -> set[str]:
        raise NotImplementedError

    routes = (*health_routes(check_ready), *openapi_routes(ROUTES), *metrics_routes(scrape, projects, None))
    served = {("GET", route.path) for route in routes}
    assert served == {(method, path) for method, path in operations() if not path.startswith("/v1/")}


def test_every_operation_names_the_rpc_of_its_route() -> None:
    assert {key: operation["x-rpc"] for key, operation in api_operations().items()} == {
        key: route.rpc.name for key, route in ROUTE.items()
    }


def test_every_query_parameter_is_specified_unless_it_is_a_field_of_a_request_that_is_the_body() -> None:
    in_body = {key for key, route in ROUTE.items() if route.body == WHOLE}
    for key, operation in api_operations().items():
        of_route = {
            name for name in ROUTE[key].parameters if not name.endswith(":*")
        }  # a family has no OpenAPI form
        given = [_resolved(each) for each in operation.get("parameters", ())]
        specified = {each["name"].partition(".")[0] for each in given if each["in"] == "query"}
        assert specified <= of_route if key in in_body else specified == of_route, key


def _resolved(parameter: dict[str, Any]) -> dict[str, Any]:
    name = parameter.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = specification()["components"]["parameters"][name] if name else parameter
    return found


def test_every_deletion_can_be_previewed_and_limited() -> None:
    deletions = [route for route in ROUTES if route.method == "DELETE"]
    assert len(deletions) == 17
    assert [route.operation for route in deletions if not {*SAFEGUARDS} <= {*route.parameters}] == []


def test_operation_ids_are_unique_and_begin_with_the_name_of_the_rpc() -> None:
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(ids) == len(set(ids))
    for operation in api_operations().values():
        assert operation["operationId"].startswith(operation["x-rpc"].rpartition(".")[2])


def test_every_operation_is_tagged_with_its_service() -> None:
    for operation in api_operations().values():
        service = operation["x-rpc"].rpartition(".")[0]
        assert operation["tags"] == [service or "Subscriber"]


def test_every_operation_is_specified_to_succeed() -> None:
    assert all("200" in operation["responses"] for operation in api_operations().values())


def test_the_specified_error_statuses_are_those_that_the_api_answers_with() -> None:
    for operation in api_operations().values():
        errors = {int(status) for status in operation["responses"]} - {200}
        if operation["x-rpc"] in WITH_RANGES:
            errors -= {206, 416}
        assert errors <= set(HTTP_STATUS.values())
        assert {400, 404} <= errors  # a path that cannot be read, or names nothing
