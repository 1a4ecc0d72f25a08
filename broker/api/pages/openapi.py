"""The API specification: operations and schemas of api_spec/openapi.yaml, at the paths of the table of calls."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from broker.api.rest import routes

_ID = re.compile(r"(\w+)/\*")
# Where the parameter of a collection is not its name without the "s".
_OTHER_PARAMETERS = {"apiKeys": "key", "scheduled": "message", "shareLinks": "link"}
_WITHOUT_SERVICE = "Subscriber"  # the tag of extensions of Pub/Sub


def specification(all_routes: Sequence[routes.Route]) -> Mapping[str, Any]:
    """The document of a broker that serves these routes."""
    document: dict[str, Any] = yaml.load(_text(), Loader=yaml.CSafeLoader)
    operations = document.pop("operations")
    document["paths"] = _paths(operations, all_routes) | document["paths"]
    return document


def _text() -> str:
    shipped = files("broker").joinpath("_shipped", "api_spec", "openapi.yaml")
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    # in a checkout api_spec/ lies beside the package
    return (Path(__file__).parents[3] / "api_spec" / "openapi.yaml").read_text(encoding="utf-8")


def _paths(operations: Mapping[str, Any], all_routes: Sequence[routes.Route]) -> dict[str, Any]:
    """The paths of the API, in the order of the operations; an operation that no route serves is left out."""
    by_operation = {route.operation: route for route in all_routes}
    paths: dict[str, Any] = {}
    for name, described in operations.items():
        route = by_operation.get(name)
        if route is None:
            continue
        path, parameters = _template(route.path)
        item = paths.setdefault(path, {"parameters": parameters} if parameters else {})
        service = route.rpc.name.rpartition(".")[0]
        item[route.method.lower()] = {
            "operationId": name,
            "x-rpc": route.rpc.name,
            "tags": [service or _WITHOUT_SERVICE],
            **described,
        }
    return paths


def _template(path: str) -> tuple[str, list[dict[str, str]]]:
    """The path as OpenAPI writes it, and its parameters."""
    names: list[str] = []

    def named(match: re.Match[str]) -> str:
        names.append(_OTHER_PARAMETERS.get(match[1], match[1].removesuffix("s")))
        return f"{match[1]}/{{{names[-1]}}}"

    return f"/v1/{_ID.sub(named, path)}", [{"$ref": f"#/components/parameters/{name}"} for name in names]


def openapi_routes(all_routes: Sequence[routes.Route]) -> list[Route]:
    """GET /openapi.json, and GET / as the emulator answers it (clients and scripts wait for it)."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(specification(all_routes))

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def root(_: Request) -> Response:
        return PlainTextResponse("Ok\n")

    return [Route("/openapi.json", openapi), Route("/", root)]
