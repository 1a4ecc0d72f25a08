"""The page that a share link opens: the pushes of one subscription, for somebody without a credential.

The cookie has the token of the link, and browsers send it to this page alone.  The API does not take it.  Each page
asks again what the link permits.
"""

from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.access.share_links.holders import Holder, Holders
from broker.console.api import Viewer, api_of, peer_of
from broker.console.cookies import Cookie
from broker.console.forms import token_of_link
from broker.console.page import Page, View
from broker.console.pages.push_attempts import make_page
from broker.console.prefix import PREFIX
from broker.model.errors import BrokerError, Unauthenticated
from broker.model.timestamps import format_timestamp

_ROOT = f"{PREFIX}shared/"
_ELSEWHERE = "Open the link that you have been given: this browser has not opened one for this page."


class SharedPages:
    """The pages of share links.  `path`: below /console/shared/."""

    path = "projects/{project}/subscriptions/{subscription}/pushAttempts"

    def __init__(self, holders: Holders, *, now: Callable[[], datetime], secure: bool) -> None:
        """`secure`: the broker is reached over TLS."""
        self._holders = holders
        self._now = now
        self._cookie = Cookie("broker_share", path=_ROOT, secure=secure)

    async def open(self, request: Request) -> Response | str:
        """Return a redirection to the page of a link that sets the cookie, or why the link is refused."""
        try:
            token = await token_of_link(request)
            holder = await self._holders.find(token)
        except BrokerError as error:
            return str(error)
        path = _ROOT + quote(holder.link.subscription, safe="/:+~")
        response = RedirectResponse(f"{path}/pushAttempts", 303)
        left = int((holder.link.expires_at - self._now()).total_seconds())
        self._cookie.set(response, token, path=path, seconds=max(left, 1))
        return response

    async def page(self, request: Request) -> Page:
        """Return the page of the link that the browser has opened.

        Raises Unauthenticated (there is none, it has ended, or is of another subscription), Unavailable, ApiError.
        """
        parts = request.path_params
        holder = await self._holder(request, f"projects/{parts['project']}/subscriptions/{parts['subscription']}")
        viewer = Viewer(caller=holder.caller, peer=peer_of(request))
        view = View(
            api=api_of(request), viewer=viewer, parts=parts, query=dict(request.query_params), now=self._now()
        )
        return await make_page(view, until=format_timestamp(holder.link.expires_at))

    async def _holder(self, request: Request, subscription: str) -> Holder:
        token = self._cookie.of(request)
        if not token:
            raise Unauthenticated(_ELSEWHERE)
        holder = await self._holders.find(token)
        if holder.link.subscription != subscription:
            raise Unauthenticated(_ELSEWHERE)
        return holder
