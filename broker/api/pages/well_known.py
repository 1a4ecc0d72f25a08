"""OpenID Connect discovery and the public keys, with which receivers of pushes verify tokens.

https://openid.net/specs/openid-connect-discovery-1_0.html.  The keys are also served at the path that Google uses.
"""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_KEYS_PATH = "/.well-known/jwks.json"
# Seconds.  A key is published a day before it signs, so verifiers may cache the keys for much longer.
_CACHED = {"Cache-Control": "public, max-age=300"}
_NOT_STORED = {"Cache-Control": "no-store"}


def well_known_routes(
    published_keys: Callable[[], Mapping[str, Any]], *, issuer: str, is_configured: bool
) -> list[Route]:
    """GET /.well-known/openid-configuration, /.well-known/jwks.json and /oauth2/v3/certs.

    `issuer` is the tokens' `iss`, and the address of the keys is below it.  Neither is made from the request: with
    a forged Host header it would name an attacker's keys.  Unless the issuer `is_configured` each broker has its
    own, so no cache may store the document and return it to verifiers of another.
    """

    async def configuration(_: Request) -> Response:
        document = {
            "issuer": issuer,
            "jwks_uri": issuer.rstrip("/") + _KEYS_PATH,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claims_supported": ["iss", "aud", "azp", "sub", "email", "email_verified", "iat", "exp"],
        }
        return JSONResponse(document, headers=_CACHED if is_configured else _NOT_STORED)

    async def keys(_: Request) -> Response:
        return JSONResponse(dict(published_keys()), headers=_CACHED)

    return [
        Route("/.well-known/openid-configuration", configuration),
        Route(_KEYS_PATH, keys),
        Route("/oauth2/v3/certs", keys),
    ]
