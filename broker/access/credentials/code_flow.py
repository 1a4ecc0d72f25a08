"""The authorization code flow of OpenID Connect, with PKCE: people sign in at an issuer.

https://openid.net/specs/openid-connect-core-1_0.html, section 3.1, and https://www.rfc-editor.org/rfc/rfc9700
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from broker.access.credentials import refusals
from broker.access.credentials.issuer_tokens import IssuerTokens
from broker.access.credentials.tokens import read_token
from broker.access.principals.caller import Caller
from broker.access.principals.oidc_issuer import OidcIssuer, SignInClient, check_url
from broker.model.errors import Unauthenticated, Unavailable

CALLBACK = "/console/oidc/callback"
ANSWER_SECONDS = 5.0  # for each step: discovery, and the exchange of the code
DISCOVERED_SECONDS = 600.0  # for which the addresses of an issuer are used again
FAILED_SECONDS = 2.0  # for which an issuer is not asked again: anybody may follow the link of the sign-in page
MAX_SECRET_BYTES = 4_096
MAX_CODE = 4_096  # characters
_MAX_REASON = 300  # characters of an issuer's error


class CodeFlow:
    """The issuers that people sign in at.  They are known by their number, in the order of the file."""

    def __init__(
        self,
        issuers: Collection[OidcIssuer],
        tokens: IssuerTokens,
        *,
        address: str,
        now: Callable[[], datetime],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tokens` verifies ID tokens.  `address`: the broker's, which issuers send people back to."""
        self._issuers = [issuer for issuer in issuers if issuer.sign_in is not None]
        self._tokens = tokens
        self._address = address
        self._now = now
        self._ticks = ticks
        self._found: dict[str, tuple[Mapping[str, Any], float]] = {}
        self._failed: dict[str, tuple[str, float]] = {}

    @property
    def titles(self) -> Sequence[str]:
        """The issuers as the sign-in page calls them."""
        return [_client(issuer).title or urlsplit(issuer.issuer).netloc for issuer in self._issuers]

    def has(self, number: int) -> bool:
        return 0 <= number < len(self._issuers)

    def issuer(self, number: int) -> str:
        """The URL of an issuer, which it may name in its answer (RFC 9207)."""
        return self._issuers[number].issuer

    async def authorization_url(self, number: int, *, state: str, nonce: str, verifier: str) -> str:
        """Returns the page of the issuer that asks people to sign in.  Raises Unavailable."""
        issuer = self._issuers[number]
        client, document = _client(issuer), await self._discover(issuer)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": self._redirect_url(client),
            "scope": " ".join(client.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint: str = document["authorization_endpoint"]
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query, quote_via=quote)}"

    async def caller(self, number: int, *, code: str, verifier: str, nonce: str) -> Caller:
        """Returns the caller that an issuer names in exchange for a code.

        Raises Unauthenticated: the code or the ID token is not good; Unavailable: the issuer does not answer.
        """
        issuer = self._issuers[number]
        if not 0 < len(code) <= MAX_CODE:
            raise Unauthenticated("The identity provider sent no code.")
        answer = await self._exchange(issuer, code, verifier)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise refusals.invalid("is missing in the answer of the identity provider (id_token)")
        return await self._tokens.check_id_token(
            read_token(token.encode(errors="replace")),
            issuer=issuer.issuer,
            client_id=_client(issuer).client_id,
            nonce=nonce,
            now=self._now(),
        )

    def _redirect_url(self, client: SignInClient) -> str:
        return client.redirect_url or self._address + CALLBACK

    async def _exchange(self, issuer: OidcIssuer, code: str, verifier: str) -> Mapping[str, Any]:
        from broker.access.credentials.issuer_documents import (  # slow to load
            UNREADABLE,
            make_client,
            post_form,
            reason_of,
        )

        client, document = _client(issuer), await self._discover(issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url(client),
            "code_verifier": verifier,
        }
        secret, auth = await asyncio.to_thread(_read_secret, client), None
        if secret and _takes_basic(document):
            auth = (quote(client.client_id, safe=""), quote(secret, safe=""))  # RFC 6749, section 2.3.1
        else:
            form |= {"client_id": client.client_id, **({"client_secret": secret} if secret else {})}
        try:
            async with asyncio.timeout(ANSWER_SECONDS), make_client(ANSWER_SECONDS) as http:
                status, answer = await post_form(http, document["token_endpoint"], form, auth=auth)
        except UNREADABLE as error:
            raise _unanswered(issuer, reason_of(error, ANSWER_SECONDS)) from None
        if status >= 500:
            raise _unanswered(issuer, f"it answers {status}")
        if status != 200:
            why = f"{answer.get('error', status)}: {answer.get('error_description', 'no reason is given')}"
            raise Unauthenticated(f"The identity provider refuses the code ({why[:_MAX_REASON]}).")
        return answer

    async def _discover(self, issuer: OidcIssuer) -> Mapping[str, Any]:
        """Returns the discovery document of an issuer, whose addresses are checked.  Raises Unavailable."""
        from broker.access.credentials.issuer_documents import UNREADABLE, discover, make_client, reason_of

        found = self._found.get(issuer.issuer)
        if found is not None and found[1] > self._ticks():
            return found[0]
        failed = self._failed.get(issuer.issuer)
        if failed is not None and failed[1] > self._ticks():
            raise _unanswered(issuer, failed[0])
        try:
            async with asyncio.timeout(ANSWER_SECONDS), make_client(ANSWER_SECONDS) as http:
                document = await discover(http, issuer.issuer)
            for name in ("authorization_endpoint", "token_endpoint"):
                check_url(str(document.get(name)))
        except UNREADABLE as error:
            why = reason_of(error, ANSWER_SECONDS)
            self._failed[issuer.issuer] = why, self._ticks() + FAILED_SECONDS
            raise _unanswered(issuer, why) from None
        self._found[issuer.issuer] = (document, self._ticks() + DISCOVERED_SECONDS)
        return document


def _client(issuer: OidcIssuer) -> SignInClient:
    assert issuer.sign_in is not None
    return issuer.sign_in


def _read_secret(client: SignInClient) -> str:
    """Reads the client's secret for each sign-in, so that a new one needs no restart.  Raises Unavailable."""
    if not client.client_secret_file:
        return ""
    try:
        with Path(client.client_secret_file).open("rb") as file:
            return file.read(MAX_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise Unavailable("The client secret of the identity provider cannot be read on the broker.") from None


def _takes_basic(document: Mapping[str, Any]) -> bool:
    """Whether the issuer takes the client's secret by HTTP Basic, as it does if it says nothing else."""
    methods = document.get("token_endpoint_auth_methods_supported")
    return not isinstance(methods, list) or "client_secret_basic" in methods


def _unanswered(issuer: OidcIssuer, why: str) -> Unavailable:
    return Unavailable(f"The identity provider {issuer.issuer} cannot be asked now: {why}.")
