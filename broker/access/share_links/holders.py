"""The holders of share links, as the API sees them.

A link permits what its creator may do at that moment, at most.  It ends when the creator may no longer do all that
it permits, or may no longer give access to the subscription.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from broker.access.credentials import refusals
from broker.access.credentials.directory import CredentialDirectory
from broker.access.credentials.named_principals import find_principal
from broker.access.policies.authorizer import Authorizer
from broker.access.principals.caller import Caller, Grant
from broker.access.secrets.random_secrets import digest_of_secret
from broker.access.share_links.share_link import PERMISSIONS, ShareLink, needed_for
from broker.access.share_links.share_link_rows import find_share_link
from broker.access.versions.version import AccessVersion
from broker.db.driver.database import Database
from broker.model.errors import Unauthenticated


@dataclass(frozen=True, slots=True)
class Holder:
    """A link, and the caller that its holder is."""

    link: ShareLink
    caller: Caller


class Holders:
    """Finds the holders of links."""

    def __init__(
        self,
        database: Database,
        directory: CredentialDirectory,
        authorizer: Authorizer,
        version: AccessVersion,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._directory = directory
        self._authorizer = authorizer
        self._version = version
        self._now = now

    async def find(self, token: str) -> Holder:
        """Returns the holder of a link.  Raises Unauthenticated: the link has ended; Unavailable."""
        digest = digest_of_secret(token)
        if digest is None:
            raise _ended()
        await self._version.check()
        async with self._database.transaction() as connection:
            link = await find_share_link(connection, digest=digest)
        if link is None or link.expires_at <= self._now():
            raise _ended()
        needed = needed_for(link.permissions)
        allowed = await self._authorizer.allowed(await self._creator(link), sorted(needed), [link.subscription])
        if needed.difference(allowed[link.subscription]):
            raise _ended()
        return Holder(link, _caller(link))

    async def _creator(self, link: ShareLink) -> Caller:
        """Returns the creator with the groups and attributes that its token named when it created the link."""
        found = find_principal(link.creator, self._directory.current)
        if found.why_nobody:
            raise _ended()
        return found.caller if found.caller.confined else replace(found.caller, members=link.creator_members)


def _caller(link: ShareLink) -> Caller:
    permitted = [PERMISSIONS[one] for one in link.permissions]
    needs = frozenset[str]().union(*(one.needs for one in permitted))
    return Caller(
        f"shareLink:{link.name}",
        frozenset(),
        f"shareLink:{link.name}",
        grants=(Grant(frozenset(), link.subscription, needs),),
        confined=True,
        until=link.expires_at,
        calls=frozenset[str]().union(*(one.calls for one in permitted)),
    )


def _ended() -> Unauthenticated:
    return refusals.refusal("LOGIN_REQUIRED", "The link has expired or was revoked. Ask for a new one.")
