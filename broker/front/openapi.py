"""The API specification, as the broker serves it."""

from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


@cache
def _openapi_json() -> bytes:
    shipped = files("broker").joinpath("_shipped", "api_spec", "openapi.yaml")
    if shipped.is_file():
        text = shipped.read_text(encoding="utf-8")
    else:  # in a checkout api_spec/ lies beside the package
        text = (Path(__file__).parents[2] / "api_spec" / "openapi.yaml").read_text(encoding="utf-8")
    return msgspec.json.encode(yaml.load(text, Loader=yaml.CSafeLoader))


def openapi_routes() -> list[Route]:
    """GET /openapi.json, and GET / as the emulator answers it (clients and scripts wait for it)."""

    async def openapi(_: Request) -> Response:
        return Response(_openapi_json(), media_type="application/json")

    async def root(_: Request) -> Response:
        return PlainTextResponse("Ok\n")

    return [Route("/openapi.json", openapi), Route("/", root)]
