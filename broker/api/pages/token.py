"""POST /token: exchanges a token that a service account's key has signed for an access token (RFC 7523, RFC 6749
section 5).
"""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.api.limits.admission import Admission
from broker.api.limits.request_memory import RequestMemory
from broker.model.errors import Unauthenticated, Unavailable

PATH = "/token"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
MAX_BODY_BYTES = 65_536
EXPIRES_SECONDS = 3_599  # as Google does: a second less, for the transmission

_NOT_STORED = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # which the RFC asks for


def token_routes(exchange: Callable[[bytes], Awaitable[str]], requests: RequestMemory) -> list[Route]:
    """`exchange` raises Unauthenticated for an assertion that proves nothing, and Unavailable.

    Forms count in `requests` while they arrive: nobody knows yet who sends them.
    """
    admission = Admission(Unavailable, 0, MAX_BODY_BYTES)

    async def token(request: Request) -> Response:
        try:
            fields = await _form(request, admission, requests)
        except Unavailable as error:
            return _refused("temporarily_unavailable", error.message, status=503)
        if fields is None:
            return _refused("invalid_request", f"The form is larger than {MAX_BODY_BYTES} bytes, or none.")
        if fields.get("grant_type") != GRANT_TYPE:
            return _refused("unsupported_grant_type", f"grant_type must be {GRANT_TYPE}.")
        try:
            made = await exchange(fields.get("assertion", "").encode())
        except Unauthenticated as error:
            return _refused("invalid_grant", error.message)
        except Unavailable as error:
            return _refused("temporarily_unavailable", error.message, status=503)
        body = {"access_token": made, "expires_in": EXPIRES_SECONDS, "token_type": "Bearer"}
        return JSONResponse(body, headers=_NOT_STORED)

    return [Route(PATH, token, methods=["POST"])]


def _refused(error: str, why: str, *, status: int = 400) -> Response:
    return JSONResponse({"error": error, "error_description": why}, status_code=status, headers=_NOT_STORED)


async def _form(request: Request, admission: Admission, requests: RequestMemory) -> dict[str, str] | None:
    """The first value of each field; None: it is too large, or no form.  Raises Unavailable."""
    body, sender = bytearray(), "this address" if request.client is None else request.client.host
    try:
        async for piece in request.stream():
            admission.arrive(requests, sender, len(piece), own=len(body), admitted=False)
            body += piece
            if len(body) > admission.most:
                return None
    finally:
        requests.arrived((sender,), len(body), admitted=False)
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=20)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}
