"""Creates, lists and deletes share links.  The token of a link is returned once, when the link is created."""

import secrets
from collections.abc import Awaitable, Callable, Sequence

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import Caller
from broker.access.secrets.random_secrets import make_secret
from broker.access.share_links import share_link_rows as rows
from broker.access.share_links.share_link import MAX_LINKS, ShareLink, check_permissions, check_ttl, needed_for
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.database import Database
from broker.model.errors import FailedPrecondition, NotFound, ResourceExhausted
from broker.model.names import leaf
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references

PAGE = "/console/shared"

Authorize = Callable[[Caller, Sequence[Required]], Awaitable[None]]


class ShareLinkService:
    """The share links of subscriptions."""

    def __init__(
        self, database: Database, clock: DatabaseClock, *, authorize: Authorize | None, has_console: bool
    ) -> None:
        """`authorize` raises PermissionDenied; None: anybody may do anything."""
        self._database = database
        self._clock = clock
        self._authorize = authorize
        self._has_console = has_console

    async def create_share_link(
        self, subscription: str, caller: Caller, *, permissions: Sequence[str], ttl: str
    ) -> tuple[ShareLink, str]:
        """Creates a link.  Returns it and its token.

        Raises InvalidArgument, NotFound, PermissionDenied (the caller may not do what the link would permit),
        FailedPrecondition (there is no page for it, or nothing to see on it), ResourceExhausted.
        """
        permissions, lasts = check_permissions(permissions), check_ttl(ttl)
        if self._authorize is None or not caller.authenticated:
            raise FailedPrecondition(
                "A share link is of the caller that creates it; the broker must ask who calls (--auth required)."
            )
        if not self._has_console:
            raise FailedPrecondition("A share link opens a page of the console, which is off (--console on).")
        await self._authorize(caller, [Required(one, subscription) for one in sorted(needed_for(permissions))])
        (token, digest), now = make_secret(), self._clock.now()
        link = ShareLink(
            subscription=subscription,
            link_id=secrets.token_hex(16),
            permissions=permissions,
            creator=caller.member,
            creator_members=caller.members,
            created_at=now,
            expires_at=now + lasts,
        )
        async with self._database.transaction() as connection:
            found = await existing_subscription(connection, subscription)
            if not found.is_push:
                raise FailedPrecondition(
                    f"Nothing is pushed for this subscription (resource={leaf(subscription)})."
                )
            subscription_id = found.subscription_id
            await rows.insert_share_link(connection, link=link, subscription_id=subscription_id, digest=digest)
            if await rows.count_share_links(connection, subscription_id=subscription_id, now=now) > MAX_LINKS:
                raise ResourceExhausted(f"A subscription has at most {MAX_LINKS} share links ({subscription}).")
        return link, token

    async def list_share_links(self, subscription: str, page: Page) -> tuple[Sequence[ShareLink], str]:
        """Returns a page of the links that have not expired, and the token of the next one.  Raises NotFound."""
        async with self._database.transaction() as connection:
            found = await existing_subscription(connection, subscription)
            links = await rows.list_share_links(
                connection, subscription_id=found.subscription_id, now=self._clock.now(), page=page
            )
        return cut_page(links, page.size, lambda link: link.link_id)

    async def delete_share_link(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes a link, which opens no page from then on.

        Returns the preview if the caller asked only for that.  Raises NotFound, NotAsExpected.
        """
        subscription = name.partition("/shareLinks/")[0]
        async with self._database.transaction() as connection:
            found = await existing_subscription(connection, subscription)
            link = await rows.find_share_link_by_id(
                connection, subscription_id=found.subscription_id, link_id=leaf(name)
            )
            if link is None:
                raise NotFound(f"Share link does not exist (resource={leaf(name)[:300]}).")
            if safeguards.asked:
                safeguards.check_existed(link.created_at, name)
                if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                    return preview
            await rows.delete_share_link(connection, link_id=link.link_id)
        return None
