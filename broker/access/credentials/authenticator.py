"""Authenticates callers by the credential in their request.

A verified credential is cached until it expires, until something changes in the project of its account, or until
its issuer withdraws a key.  Calls with a cached credential cost a dictionary access.  Refused credentials are
cached for a while as well.  No call costs a statement.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.access.credentials import refusals
from broker.access.credentials.certificates import KIND as CERTIFICATE
from broker.access.credentials.certificates import Certificates
from broker.access.credentials.directory import CredentialDirectory
from broker.access.credentials.issuer_tokens import IssuerTokens
from broker.access.credentials.proven import Proven
from broker.access.credentials.service_account_tokens import ServiceAccountTokens
from broker.access.credentials.tokens import read_token
from broker.access.principals.api_key import MAX_KEY_BYTES, ApiKey, digest_of
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, ANONYMOUS, Caller, Grant
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.versions.access_changes import AccessChanges
from broker.access.versions.version import AccessVersion, Validity
from broker.model.client_certificate import ClientCertificate
from broker.model.errors import Unauthenticated
from broker.model.names import project_within

MAX_KNOWN, MAX_REFUSED = 20_000, 5_000  # credentials
MAX_KNOWN_BYTES = 33_554_432  # of those that are known: one key signs any number of tokens, each of up to 16 KB
REFUSED_SECONDS = 10.0  # for which a refusal is remembered: a token may become valid
_BEARER = b"bearer"


@dataclass(frozen=True, slots=True)
class Shown:
    """The credentials of a request: the value of `Authorization`, and an API key; empty if there is none.

    `certificate` is the connection's.  It is only used if the request has no credential of its own: a proxy has a
    certificate of its own, and forwards the credentials of its clients.
    """

    authorization: bytes = b""
    api_key: bytes = b""
    certificate: ClientCertificate | None = None


class Authenticator:
    """`caller` for every call.  What it knows of a project's accounts is kept until something changes there."""

    def __init__(
        self,
        version: AccessVersion,
        directory: CredentialDirectory,
        accounts: ServiceAccountTokens,
        issuers: IssuerTokens,
        certificates: Certificates,
        *,
        now: Callable[[], datetime],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: the database's time.  `ticks`: seconds, of a clock that only goes forward."""
        self._version = version
        self._directory = directory
        self._accounts = accounts
        self._issuers = issuers
        self._certificates = certificates
        self.now = now
        self._ticks = ticks
        self._known: dict[bytes, tuple[Caller, float, Validity]] = {}
        self._known_bytes = 0
        self._refused: dict[bytes, tuple[Unauthenticated, float]] = {}
        version.after_change(self._forget_refusals)
        self.after_withdrawal = issuers.after_withdrawal
        self.after_withdrawal(self._forget_known)

    def warm(self, authorization: bytes) -> Caller | None:
        """The caller with this `Authorization`, if that is known now; else `caller` has to look."""
        found = self._known.get(authorization)
        if found is not None and found[1] > self._ticks() and found[2].holds and self._version.is_fresh:
            return found[0]
        return None

    async def caller(self, shown: Shown) -> Caller:
        """ANONYMOUS if nothing is shown.

        Raises Unauthenticated for a credential that proves nothing; Unavailable where that cannot be known now.
        """
        await self._version.check()
        if shown.authorization:
            return await self._bearer(shown.authorization)
        if shown.api_key:
            return self._of_api_key(shown.api_key)
        if shown.certificate is not None and self._certificates.are_credentials:
            return _with_end(self._certificates.check(shown.certificate, now=self.now()))
        return ANONYMOUS

    def still_holds(self, caller: Caller) -> bool:
        """Whether a caller that was let in would be let in now, apart from the end of its token: for open calls."""
        kind = caller.credential.partition(":")[0]
        if kind == "key":
            return self._accounts.still_holds(caller)
        if kind == CERTIFICATE:
            return self._certificates.still_holds(caller)
        if caller.signed_by:
            return self._issuers.still_holds(caller)
        if kind == "apiKey":
            return self._directory.current.api_key(caller.credential.removeprefix("apiKey:")) is not None
        return True

    async def authenticate_again(self, caller: Caller) -> Caller:
        """Returns a caller that was authenticated before, with the grants that its credential has now.

        Raises Unauthenticated: the credential was revoked; Unavailable where that cannot be known now.
        """
        await self._version.check()
        kind, _, name = caller.credential.partition(":")
        if kind == "key":
            return self._accounts.caller_of_key(name)
        if kind == "apiKey":
            key = self._directory.current.api_key(name)
            if key is None:
                raise refusals.revoked()
            return api_key_caller(key)
        if kind == CERTIFICATE:
            if not (self._certificates.are_credentials and self._certificates.still_holds(caller)):
                raise refusals.revoked()
        else:
            await self._issuers.check_again(caller)
        return caller

    def seconds_left(self, caller: Caller) -> float | None:
        """Returns the seconds until the caller's credential ends; None: it does not, by itself."""
        return None if caller.until is None else self._left(caller.until)

    def _left(self, until: datetime) -> float:
        return max((until - self.now()) / timedelta(seconds=1), 0.0)

    def project_of(self, caller: Caller) -> str:
        """The project that the caller's credential is of; ABOVE_PROJECTS: of none."""
        kind, _, name = caller.member.partition(":")
        if kind == "apiKey":
            return project_within(name)
        account = self._directory.current.accounts.get(name) if kind == "serviceAccount" else None
        return ABOVE_PROJECTS if account is None else account.project

    def _forget_known(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def _forget_refusals(self, changes: AccessChanges) -> None:
        if changes.credentials is None or changes.credentials:  # one that was refused may be good now
            self._refused.clear()

    async def _bearer(self, authorization: bytes) -> Caller:
        ticks = self._ticks()
        known = self._known.get(authorization)
        if known is not None and known[1] > ticks and known[2].holds:
            return known[0]
        refused = self._refused.get(authorization)
        if refused is not None and refused[1] > ticks:
            raise _again(refused[0])
        try:
            proven = await self._verify(authorization)
        except Unauthenticated as error:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            if len(authorization) <= 4096:
                self._refused[authorization] = (_again(error), ticks + REFUSED_SECONDS)
            raise
        if len(self._known) >= MAX_KNOWN or self._known_bytes + len(authorization) > MAX_KNOWN_BYTES:
            self._forget_known()
        caller = _with_end(proven)
        # Nothing is awaited after the directory was asked: the credential is good by what it has now.
        validity = self._version.validity(self.project_of(caller))
        if authorization not in self._known:
            self._known_bytes += len(authorization)
        self._known[authorization] = (caller, ticks + self._left(proven.until), validity)
        return caller

    async def _verify(self, authorization: bytes) -> Proven:
        scheme, _, value = authorization.partition(b" ")
        if scheme.lower() != _BEARER:
            raise refusals.invalid("must come as `Authorization: Bearer TOKEN`")
        token, now = read_token(value.strip()), self.now()
        if self._accounts.is_of_key(token):
            return self._accounts.check_self_signed(token, now=now)
        if self._accounts.is_access_token(token):
            return self._accounts.check_access_token(token, now=now)
        if self._issuers.is_of_issuer(token):
            return await self._issuers.check(token, now=now)
        raise refusals.invalid("is of no key that this broker knows")

    def _of_api_key(self, shown: bytes) -> Caller:
        if len(shown) > MAX_KEY_BYTES:
            raise refusals.api_key_invalid()
        found = self._directory.current.api_keys.get(digest_of(shown))
        if found is None:
            raise refusals.api_key_invalid()
        return api_key_caller(found)


def _with_end(proven: Proven) -> Caller:
    return replace(proven.caller, until=proven.until)


def _again(error: Unauthenticated) -> Unauthenticated:
    """The same refusal, without the traceback of the first."""
    return Unauthenticated(error.message, details=error.details)


def api_key_caller(key: ApiKey) -> Caller:
    """Returns the caller that this key authenticates."""
    member = f"apiKey:{key.name}"
    roles = frozenset(key.roles)
    grants = tuple(Grant(roles, resource) for resource in key.resources or [key.project])
    return Caller(
        member, frozenset({member, ALL_USERS, ALL_AUTHENTICATED_USERS}), member, grants=grants, confined=True
    )
