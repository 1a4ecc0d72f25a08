"""GET /metrics: the broker's metrics, for Prometheus."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.access.credentials.authenticator import Shown
from broker.access.policies.authorizer import Required
from broker.access.principals.caller import Caller
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.api.gate import CHALLENGE, Gate
from broker.api.permissions import NOTHING
from broker.api.rest.credentials import shown_in
from broker.api.rest.errors import encode_error
from broker.model.errors import BrokerError, PermissionDenied
from broker.net.http1.asgi import CLIENT_CERTIFICATE

PATH = "/metrics"
PERMISSION = "monitoring.timeSeries.list"  # roles/viewer and roles/monitoring.viewer have it

MayRead = Callable[[str], bool]
Scrape = Callable[[str, MayRead], Awaitable[tuple[bytes, str]]]


def metrics_routes(scrape: Scrape, projects: Callable[[], Awaitable[set[str]]], gate: Gate | None) -> list[Route]:
    """`scrape(accept, may_read)` gives the body and its type, of the projects that may be read ("": what is of
    none); `projects()`: those that there are.  With a `gate` a caller gets the series of projects of which it is a
    viewer, and those of the process if it is one of the installation.
    """

    async def metrics(request: Request) -> Response:
        try:
            readable = None if gate is None else await _readable(gate, request, await projects())
            accept = request.headers.get("accept", "")
            body, content_type = await scrape(accept, lambda project: readable is None or project in readable)
        except BrokerError as error:
            return _refusal(error)
        return Response(body, headers={"content-type": content_type})

    return [Route(PATH, metrics)]


async def _readable(gate: Gate, request: Request, projects: set[str]) -> set[str]:
    """Raises Unauthenticated, PermissionDenied, Unavailable."""
    caller = await gate.caller(_shown(request), NOTHING)
    if await gate.may(caller, Required(PERMISSION, ABOVE_PROJECTS)):
        return {"", *projects}
    readable = {each for each in projects if await _may_read(gate, caller, each)}
    if not readable:
        raise PermissionDenied(f"Permission denied: {PERMISSION} on some project is needed for {PATH}.")
    return readable


async def _may_read(gate: Gate, caller: Caller, project: str) -> bool:
    return await gate.may(caller, Required(PERMISSION, f"projects/{project}"))


def _shown(request: Request) -> Shown:
    scope = request.scope
    return shown_in(scope["headers"], scope["query_string"], scope["state"].get(CLIENT_CERTIFICATE))


def _refusal(error: BrokerError) -> Response:
    answer = encode_error(error)
    headers = {"WWW-Authenticate": CHALLENGE.decode()} if answer.status == 401 else {}
    return Response(answer.body, answer.status, headers, media_type="application/json")
