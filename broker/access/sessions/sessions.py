"""Sessions of the console.

A session begins with a credential of the API, with a sign-in at an OIDC issuer, or with a link that works once.
The browser has a random secret, and the database its digest.  Each page looks the session up, so that a session
that was ended opens no page anywhere, and asks whether its credential still exists.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from broker.access.credentials import refusals
from broker.access.credentials.authenticator import Authenticator
from broker.access.principals.caller import Caller
from broker.access.secrets.random_secrets import digest_of_secret, make_secret
from broker.access.sessions import session_rows as rows
from broker.db.driver.database import Database

LASTS = timedelta(hours=12)  # however much it is used
IDLE = timedelta(hours=1)  # without a page, after which a session ends
LINK_LASTS = timedelta(seconds=60)
MOST = 100  # sessions and links of a principal; the oldest one ends for a new one
_NOTED_EVERY = timedelta(minutes=1)
_REVOCABLE = ("key", "apiKey")  # credentials whose end the broker knows


class Sessions:
    """Begins, finds and ends sessions."""

    def __init__(self, database: Database, authenticator: Authenticator, *, now: Callable[[], datetime]) -> None:
        self._database = database
        self._authenticator = authenticator
        self._now = now

    async def begin(self, caller: Caller) -> str:
        """Begins a session of a caller.  Returns its secret.

        A session of a credential whose end only its issuer knows ends with it, at `caller.until`.  Raises
        Unauthenticated: the principal has a name that cannot be stored.
        """
        return await self._insert(caller, is_link=False, lasts=LASTS)

    async def make_link(self, caller: Caller) -> tuple[str, datetime]:
        """Makes a link that begins a session of the caller once.  Returns its secret, and until when it works."""
        expires_at = self._now() + LINK_LASTS
        return await self._insert(caller, is_link=True, lasts=LINK_LASTS), expires_at

    async def open_link(self, link: str) -> str:
        """Begins the session of a link.  Returns its secret.

        Raises Unauthenticated: the link has expired or was used, or its credential was revoked.
        """
        link_digest = digest_of_secret(link)
        if link_digest is None:
            raise refusals.link_invalid()
        secret, digest = make_secret()
        async with self._database.transaction() as connection:
            found = await rows.begin_session_of_link(
                connection, link=link_digest, session=digest, now=self._now(), lasts=LASTS
            )
        if found is None:
            raise refusals.link_invalid()
        await self._authenticator.authenticate_again(found.caller)
        return secret

    async def find(self, secret: str) -> Caller:
        """Returns the caller of a session, and notes that it is used.

        Raises Unauthenticated: it has ended, or its credential was revoked.  Raises Unavailable.
        """
        now, digest = self._now(), digest_of_secret(secret)
        if digest is None:
            raise refusals.session_ended()
        async with self._database.transaction() as connection:
            found = await rows.find_session(connection, digest=digest)
            if found is None or found.expires_at <= now or found.used_at <= now - IDLE:
                raise refusals.session_ended()
            if found.used_at <= now - _NOTED_EVERY:
                await rows.note_use(connection, digest=digest, now=now)
        return await self._authenticator.authenticate_again(found.caller)

    async def end(self, secret: str) -> None:
        """Ends a session, if there is one."""
        digest = digest_of_secret(secret)
        if digest is not None:
            async with self._database.transaction() as connection:
                await rows.delete_session(connection, digest=digest)

    async def _insert(self, caller: Caller, *, is_link: bool, lasts: timedelta) -> str:
        if not _can_be_stored(caller):
            raise refusals.invalid("names somebody by characters that cannot be stored")
        now = self._now()
        if caller.credential.partition(":")[0] in _REVOCABLE:
            caller = replace(caller, until=None)
        (secret, digest), expires_at = make_secret(), now + lasts
        if caller.until is not None:
            expires_at = min(expires_at, caller.until)
        async with self._database.transaction() as connection:
            await rows.insert_session(
                connection,
                digest=digest,
                caller=caller,
                is_link=is_link,
                now=now,
                expires_at=expires_at,
                most=MOST,
            )
        return secret


def _can_be_stored(caller: Caller) -> bool:
    try:
        return all("\0" not in text and text.encode() for text in (caller.credential, *caller.members))
    except UnicodeEncodeError:
        return False
