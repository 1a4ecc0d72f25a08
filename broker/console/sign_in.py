"""Sign-in: a credential of the API in a cookie that no script reads and that the API never takes.

A service account's key file is exchanged for an access token, which lasts an hour.  An API key or an access token
is kept as it was given.  The API checks the credential with each page, so a key that is deleted opens no page.
"""

import base64
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.client.credentials import KeyFile, is_key_file
from broker.client.stop import Misuse
from broker.console.api import ApiError, Viewer, api_of
from broker.console.forms import read_form
from broker.console.prefix import PREFIX
from broker.model.errors import BrokerError

MAX_FORM_BYTES = 65_536
_BEARER, _API_KEY = b"authorization", b"x-goog-api-key"
_EMPTY = "Paste a key file, an API key or an access token."
_NOT_TEXT = "The form is not text, or is longer than 64 KB."


class SignIn:
    """The cookie of one broker."""

    def __init__(self, exchange: Callable[[bytes], Awaitable[str]], *, secure: bool) -> None:
        """`exchange` makes an access token from a signed assertion.  `secure`: the broker is reached over TLS."""
        self._exchange = exchange
        self._secure = secure
        self._cookie = "__Secure-broker_session" if secure else "broker_session"

    def credentials(self, request: Request) -> tuple[tuple[bytes, bytes], ...]:
        """Return the header that the API takes; none if the viewer has not signed in."""
        try:
            kind, _, value = base64.urlsafe_b64decode(request.cookies.get(self._cookie, "")).partition(b"=")
        except ValueError:
            return ()
        return ((kind, value),) if kind in (_BEARER, _API_KEY) and value.isascii() else ()

    async def answer(self, request: Request, target: str) -> Response | str:
        """Return a redirection to `target` that sets the cookie, or why the credential is refused."""
        form = await read_form(request, MAX_FORM_BYTES)
        credential = "" if form is None else form.get("credential", "").strip()
        if not credential:
            return _NOT_TEXT if form is None else _EMPTY
        try:
            header = await self._header(credential)
            client = request.client
            peer = None if client is None else (client.host, client.port)
            await api_of(request).get(Viewer(credentials=(header,), peer=peer), "whoami")
        except (ApiError, BrokerError, Misuse) as error:
            return str(error)
        response = RedirectResponse(target, 303)
        value = base64.urlsafe_b64encode(b"=".join(header)).decode()
        response.set_cookie(
            self._cookie, value, path=PREFIX.rstrip("/"), httponly=True, samesite="lax", secure=self._secure
        )
        return response

    def forget(self, _: Request, response: Response) -> None:
        """Delete the cookie."""
        response.delete_cookie(
            self._cookie, path=PREFIX.rstrip("/"), httponly=True, samesite="lax", secure=self._secure
        )

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
            return _BEARER, b"Bearer " + (await self._exchange(key.signed(key.token_uri).encode())).encode()
        if not (credential.isascii() and credential.isprintable()) or " " in credential:
            raise Misuse("A key or a token has no spaces and no line ends.")
        if credential.count(".") >= 2:
            return _BEARER, b"Bearer " + credential.encode()
        return _API_KEY, credential.encode()
