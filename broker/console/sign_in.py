"""Sign-in: a credential of the API, or a link that works once, begins a session of the console.

The cookie has the secret of the session, which the API does not take.  A session ends 12 hours after it has begun,
after an hour without a page, and at once when its credential is revoked.
"""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.access.credentials.authenticator import Shown
from broker.access.principals.caller import Caller
from broker.access.sessions.sessions import Sessions
from broker.client.credentials import KeyFile, is_key_file
from broker.client.stop import Misuse
from broker.console.api import ApiError, Viewer, api_of, peer_of
from broker.console.cookies import Cookie
from broker.console.forms import form_field, token_of_link
from broker.model.errors import BrokerError, Unauthenticated

_EMPTY = "Paste a key file, an API key or an access token."
_NOT_TEXT = "The form is not text, or is longer than 64 KB."


class SignIn:
    """The sessions of one broker."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        authenticate: Callable[[Shown], Awaitable[Caller]],
        exchange: Callable[[bytes], Awaitable[str]],
        secure: bool,
    ) -> None:
        """`exchange` makes an access token from a signed assertion.  `secure`: the broker is reached over TLS."""
        self._sessions = sessions
        self._authenticate = authenticate
        self._exchange = exchange
        self._cookie = Cookie("broker_session", secure=secure)

    def has_cookie(self, request: Request) -> bool:
        """Whether the browser has had a session, which may have ended."""
        return bool(self._cookie.of(request))

    async def has_ended(self, request: Request) -> bool:
        """Whether the browser has had a session that has ended; False also if that cannot be known now."""
        try:
            return self.has_cookie(request) and await self.caller(request) is None
        except BrokerError:
            return False

    async def caller(self, request: Request) -> Caller | None:
        """Return the caller of the session; None if there is none any more.  Raises Unavailable."""
        secret = self._cookie.of(request)
        if not secret:
            return None
        try:
            return await self._sessions.find(secret)
        except Unauthenticated:
            return None

    async def by_credential(self, request: Request, target: str) -> Response | str:
        """Return a redirection to `target` that sets the cookie, or why the credential is refused."""
        credential = await form_field(request, "credential")
        if not credential:
            return _NOT_TEXT if credential is None else _EMPTY
        try:
            name, value = await self._header(credential)
            # The API limits how many credentials an address may try.
            await api_of(request).get(Viewer(credentials=((name, value),), peer=peer_of(request)), "whoami")
            shown = Shown(authorization=value) if name == b"authorization" else Shown(api_key=value)
            return await self.begin(request, target, await self._authenticate(shown))
        except (ApiError, BrokerError, Misuse) as error:
            return str(error)

    async def by_link(self, request: Request, target: str) -> Response | str:
        """Return a redirection to `target` that sets the cookie, or why the link is refused."""
        try:
            secret = await self._sessions.open_link(await token_of_link(request))
            return await self._redirect(request, target, secret)
        except BrokerError as error:
            return str(error)

    async def begin(self, request: Request, target: str, caller: Caller) -> Response:
        """Begin a session.  Raises a BrokerError."""
        return await self._redirect(request, target, await self._sessions.begin(caller))

    async def end(self, request: Request, response: Response) -> None:
        """End the session, in the database as well.  Raises a BrokerError."""
        await self._sessions.end(self._cookie.of(request))
        self._cookie.delete(response)

    async def _redirect(self, request: Request, target: str, secret: str) -> Response:
        await self._sessions.end(self._cookie.of(request))  # the one that this browser had before
        response = RedirectResponse(target, 303)
        self._cookie.set(response, secret)
        return response

    async def _header(self, credential: str) -> tuple[bytes, bytes]:
        """Raises Unauthenticated, Unavailable, Misuse."""
        if credential.startswith("{"):
            try:
                fields = msgspec.json.decode(credential)
            except msgspec.DecodeError:
                raise Misuse("This is neither JSON nor a key.") from None
            if not is_key_file(fields):
                raise Misuse("This is not the key file of a service account.")
            key = KeyFile(fields, "The key file")
            token = await self._exchange(key.signed(key.token_uri).encode())
            return b"authorization", b"Bearer " + token.encode()
        if not (credential.isascii() and credential.isprintable()) or " " in credential:
            raise Misuse("A key or a token has no spaces and no line ends.")
        if credential.count(".") >= 2:
            return b"authorization", b"Bearer " + credential.encode()
        return b"x-goog-api-key", credential.encode()
