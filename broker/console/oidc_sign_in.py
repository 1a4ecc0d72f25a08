"""Sign-in at an issuer of OpenID Connect: the two pages between which people are there.

The browser keeps a random value in a cookie.  The state, the nonce and the verifier are made from it, so an answer
of the issuer is good in the browser that asked for it, and nothing is stored.
"""

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.access.credentials.code_flow import CodeFlow
from broker.console.cookies import Cookie
from broker.console.prefix import own_path
from broker.console.sign_in import SignIn
from broker.model.errors import InvalidArgument, NotFound, Unauthenticated

LASTS = timedelta(minutes=10)  # from the link to the answer
MAX_TARGET = 2_000  # characters
_AGAIN = "Start again from the sign-in page."
_STRANGE = (
    f"This browser has not asked for this sign-in, or has asked for another one since. {_AGAIN} If it happens each "
    "time, open the console at the address that the identity provider sends you back to."
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A sign-in that has begun.  `issuer`: its number.  `target`: the page to show at the end."""

    secret: bytes
    issuer: int
    target: str
    began: datetime

    @property
    def state(self) -> str:
        return self._derived(b"state")

    @property
    def nonce(self) -> str:
        return self._derived(b"nonce")

    @property
    def verifier(self) -> str:
        return self._derived(b"verifier")

    def _derived(self, what: bytes) -> str:
        return urlsafe_b64encode(hmac.digest(self.secret, what, "sha256")).rstrip(b"=").decode()

    def encode(self) -> str:
        fields = [self.secret.hex(), self.issuer, self.target, self.began.isoformat()]
        return urlsafe_b64encode(json.dumps(fields).encode()).decode()


class OidcSignIn:
    """The issuers of one broker."""

    def __init__(self, flow: CodeFlow, sign_in: SignIn, *, now: Callable[[], datetime], secure: bool) -> None:
        """`sign_in` begins sessions.  `secure`: the broker is reached over TLS."""
        self._flow = flow
        self._sign_in = sign_in
        self._now = now
        self._cookie = Cookie("broker_oidc", path="/", secure=secure)

    @property
    def titles(self) -> Sequence[str]:
        """The issuers in the order of their numbers."""
        return self._flow.titles

    async def start(self, request: Request) -> Response:
        """Return a redirection to the issuer whose number the address has.  Raises NotFound, Unavailable."""
        given = request.query_params.get("issuer", "")
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else -1
        if not self._flow.has(number):
            raise NotFound("There is no such identity provider (issuer).")
        target = own_path(request.query_params.get("next", "")[:MAX_TARGET])
        attempt = _Attempt(secrets.token_bytes(32), number, target, self._now())
        url = await self._flow.authorization_url(
            number, state=attempt.state, nonce=attempt.nonce, verifier=attempt.verifier
        )
        response = RedirectResponse(url, 303)
        self._cookie.set(response, attempt.encode(), seconds=int(LASTS.total_seconds()))
        return response

    async def finish(self, request: Request) -> Response:
        """Return a redirection to the page that was asked for, with the cookie of a session.

        Raises InvalidArgument, Unauthenticated (the issuer or the user says no), Unavailable.
        """
        attempt, query = self._attempt(request), request.query_params
        state = query.get("state", "").encode(errors="replace")
        if attempt is None or not hmac.compare_digest(state, attempt.state.encode()):
            raise InvalidArgument(_STRANGE)
        if attempt.began + LASTS <= self._now():
            raise Unauthenticated(f"The sign-in took longer than {LASTS.seconds // 60} minutes. {_AGAIN}")
        issuer = self._flow.issuer(attempt.issuer)
        if query.get("iss", issuer) != issuer:
            raise InvalidArgument(f"Another identity provider has answered (iss). {_AGAIN}")
        if error := query.get("error"):
            why = query.get("error_description", "no reason is given")
            raise Unauthenticated(f"The identity provider refuses the sign-in ({error[:100]}: {why[:300]}).")
        caller = await self._flow.caller(
            attempt.issuer, code=query.get("code", ""), verifier=attempt.verifier, nonce=attempt.nonce
        )
        return await self._sign_in.begin(request, attempt.target, caller)

    def forget(self, response: Response) -> None:
        """Delete the cookie: each answer is good once in a browser."""
        self._cookie.delete(response)

    def _attempt(self, request: Request) -> _Attempt | None:
        """Return the sign-in that the browser has begun; None: none, or its cookie is not ours."""
        try:
            secret, number, target, began = json.loads(urlsafe_b64decode(self._cookie.of(request)))
            attempt = _Attempt(bytes.fromhex(secret), number, own_path(target), datetime.fromisoformat(began))
            is_ours = len(attempt.secret) == 32 and self._flow.has(number) and attempt.began.tzinfo is not None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        return attempt if is_ours else None
