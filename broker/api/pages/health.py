"""Liveness and readiness."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.model.errors import BrokerError


def health_routes(
    check_ready: Callable[[], Awaitable[None]], warnings: Callable[[], Sequence[str]] = tuple
) -> list[Route]:
    """GET /healthz (the process answers) and GET /readyz (`check_ready` raises no BrokerError).

    `warnings()`: what an operator should see to although the broker is ready.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        try:
            await check_ready()
        except BrokerError as error:
            return JSONResponse({"status": "unavailable", "reason": error.message}, status_code=503)
        found = list(warnings())
        return JSONResponse({"status": "ok", "warnings": found} if found else {"status": "ok"})

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
