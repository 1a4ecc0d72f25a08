"""The page that a share link opens, and what its holder may do: for somebody without a credential.

The cookie has the token of the link, and browsers send it to this page and its actions alone.  The API does not
take it.  Each request asks again what the link permits, and calls the API as its holder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.access.share_links.holders import Holder, Holders
from broker.console.actions import subscriptions
from broker.console.actions.action import Action, Json, Receipt, Target, Values
from broker.console.actions.common import SUBSCRIPTION
from broker.console.actions.pages import ActionPages, Asked, Offers, Refuse, Show
from broker.console.api import ApiError, Viewer, api_of, peer_of
from broker.console.cookies import Cookie
from broker.console.forms import token_of_link
from broker.console.page import Page, View
from broker.console.pages.push_attempts import make_page
from broker.console.prefix import PREFIX
from broker.model.errors import BrokerError, Unauthenticated
from broker.model.timestamps import format_timestamp

SHARED_PAGE = f"shared/{SUBSCRIPTION}/pushAttempts"
_ROOT = f"{PREFIX}shared/"
_HOLDER = "console.holder"  # in the scope of a request
_MOST_READ = 10  # pages of 1,000 of requests by minute: a day has 1,440 minutes, with a row for each status
_ELSEWHERE = "Open the link that you have been given: this browser has not opened one for this page."


class SharedPages:
    """The pages of share links.  `path`: below /console/shared/."""

    path = f"{SUBSCRIPTION}/pushAttempts"

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

    async def find_holder(self, request: Request) -> None:
        """Find the holder of the link that the browser has opened, for the page and its actions.

        Raises Unauthenticated (there is none, it has ended, or is of another subscription), Unavailable.
        """
        token = self._cookie.of(request)
        if not token:
            raise Unauthenticated(_ELSEWHERE)
        holder = await self._holders.find(token)
        if holder.link.subscription != SUBSCRIPTION.format(**request.path_params):
            raise Unauthenticated(_ELSEWHERE)
        request.scope[_HOLDER] = holder

    async def page(self, request: Request) -> Page:
        """Return the page of the link.  Raises ApiError."""
        view = View(
            api=api_of(request),
            viewer=_viewer(request),
            parts=request.path_params,
            query=dict(request.query_params),
            now=self._now(),
        )
        page = await make_page(view, until=format_timestamp(_holder(request).link.expires_at))
        acting = SHARED_PAGE.format(**request.path_params)
        return replace(page, row_actions={"resend": [acting]}, data={**page.data, "acting": acting})


def _shared(action: Action) -> Action:
    """Return an action on a subscription as one on the page of a share link, to which it leads back."""

    def subscription(target: Target) -> Target:
        return Target(target.parts, SUBSCRIPTION.format(**target.parts))

    def receipt(target: Target, values: Values, answer: Json) -> Receipt:
        return Receipt(action.receipt(subscription(target), values, answer).text, target.name)

    return replace(
        action,
        on=SHARED_PAGE,
        shown_on=action.shown_on and ("",),
        applies=lambda _: True,
        call=lambda target, values: action.call(subscription(target), values),
        reads=lambda target, texts: action.reads(subscription(target), texts),
        receipt=receipt,
        command=lambda _target, _values: "",
    )


_ACTIONS = {
    "RESEND": _shared(
        replace(
            subscriptions.RESEND,
            shown_on=(),
            help="They are pushed once more, even if your endpoint has taken them before.",
        )
    ),
    "RECOVER": _shared(subscriptions.RECOVER),
}


class SharedActions(ActionPages):
    """The actions of the holders of share links: those that the link permits, on messages that the page shows."""

    def __init__(
        self, *, now: Callable[[], datetime], show: Show, refuse: Refuse, read_only: bool, secure: bool
    ) -> None:
        """Take what ActionPages takes."""
        super().__init__(
            list(_ACTIONS.values()),
            now=now,
            viewer=_viewer,
            show=show,
            refuse=refuse,
            checks_permissions=True,
            read_only=read_only,
            secure=secure,
            kind="shared",
        )

    async def offers(self, request: Request, path: str, page: Page) -> Offers:
        """Return what the link permits; what it does not is not mentioned."""
        return replace(await super().offers(request, path, page), missing=())

    async def permitted(self, request: Request, asked: Sequence[Asked]) -> Sequence[Asked]:
        may = [_ACTIONS[one] for one in _holder(request).link.permissions if one in _ACTIONS]
        return [each for each in asked if each.action in may]

    async def check(self, request: Request, action: Action, target: Target, values: Values) -> None:
        """Refuse to resend what was never pushed: a link gives no access to the other messages of the topic.

        Raises ApiError.
        """
        for message_id in values.get("messageIds", ()):
            if not await _was_pushed(request, SUBSCRIPTION.format(**target.parts), message_id):
                why = f"The page does not show a push of message {message_id}."
                raise ApiError(404, "NOT_FOUND", why)


async def _was_pushed(request: Request, subscription: str, message_id: str) -> bool:
    """Tell whether a failed request with the message is on record, or it was the last one of a minute."""
    api, viewer = api_of(request), _viewer(request)
    failed = await api.get(viewer, f"{subscription}:pushFailures", {"messageId": message_id, "pageSize": 1})
    if failed.get("pushFailures"):
        return True
    query: Mapping[str, str | int] = {"pageSize": 1_000}
    for _ in range(_MOST_READ):
        found = await api.get(viewer, f"{subscription}:pushAttempts", query)
        if any(one["lastMessageId"] == message_id for one in found.get("pushAttempts", ())):
            return True
        if "nextPageToken" not in found:
            break
        query = {"pageSize": 1_000, "pageToken": found["nextPageToken"]}
    return False


def _holder(request: Request) -> Holder:
    holder: Holder = request.scope[_HOLDER]
    return holder


def _viewer(request: Request) -> Viewer:
    return Viewer(caller=_holder(request).caller, peer=peer_of(request))
