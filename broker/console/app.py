"""The routes of the console below /console/: pages, sign-in, help and files.

The page of a resource is "/console/" followed by its name, as its call is "/v1/" followed by its name.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from broker.access.principals.caller import Caller
from broker.api.rest.errors import HTTP_STATUS
from broker.console.actions.pages import ActionPages, Offers
from broker.console.actions.table import ACTIONS
from broker.console.api import ApiError, Viewer, api_of, peer_of
from broker.console.assets import Assets
from broker.console.compression import compress_page, is_compressed
from broker.console.event_stream import EventStreamResponse
from broker.console.oidc_sign_in import OidcSignIn
from broker.console.page import Page, PageRoute, StreamRoute, View
from broker.console.prefix import PREFIX, own_path
from broker.console.render import HEADERS, Renderer
from broker.console.routes import PAGES, STREAMS
from broker.console.shared import SHARED_PAGE, SharedActions, SharedPages
from broker.console.shared_reads import SharedReads, takes_shared
from broker.console.sign_in import SignIn
from broker.model.errors import BrokerError
from broker.model.timestamps import format_timestamp
from broker.net.http1.asgi import CLIENT_CERTIFICATE

SESSION_SECONDS = 10.0  # between two times that the session of an open stream is looked up
THEMES = ("light", "dark")
_THEME = "broker_theme"  # a cookie
_CALLER = "console.caller"  # in the scope of a request: the state is shared by all of them
_READS = ("GET", "HEAD")
_SIGN_IN, _SIGN_OUT, _LINK, _SHARED = f"{PREFIX}login", f"{PREFIX}logout", f"{PREFIX}link", f"{PREFIX}shared"
_SIGN_IN_FORMS = frozenset({_SIGN_IN, _SIGN_OUT, _LINK, _SHARED})  # those that a read-only console takes

Answer = Callable[[Request], Awaitable[Response]]


class Console:
    """The console of one process, an application of ASGI."""

    def __init__(
        self,
        *,
        version: str,
        now: Callable[[], datetime],
        sign_in: SignIn | None = None,
        oidc: OidcSignIn | None = None,
        shared: SharedPages | None = None,
        read_only: bool = False,
        secure: bool = False,
    ) -> None:
        """`version`: the broker's.  `now`: its clock.  `secure`: the broker is reached over TLS.

        `sign_in`, `oidc`, `shared`: None where authentication is off.  `read_only`: it takes no form but
        those of the sign-in.
        """
        self._now = now
        self._assets = Assets()
        self._renderer = Renderer(self._assets, version=version)
        self._sign_in = sign_in
        self._actions = ActionPages(
            ACTIONS,
            now=now,
            viewer=self._viewer,
            show=self._show,
            refuse=self._refused,
            checks_permissions=sign_in is not None,
            read_only=read_only,
            secure=secure,
        )
        self._oidc = oidc
        self._shared = shared
        self._shared_actions = SharedActions(
            now=now, show=self._show, refuse=self._unshown, read_only=read_only, secure=secure
        )
        self._read_only = read_only
        self._shared_reads = SharedReads(now)
        self._app = Starlette(routes=self.routes())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "path_params": {}}  # without those of the route that leads to the console
        app: Any = self._app
        if scope["type"] == "http" and self._refuses(scope["method"], scope["path"]):
            app = self._refuse_action(Request(scope))
        await app(scope, receive, send)

    def routes(self) -> list[Route]:
        return [
            Route(f"{PREFIX}open", self._open, methods=["GET"]),
            Route(PREFIX.rstrip("/"), self._to_home, methods=["GET"]),
            Route(f"{PREFIX}help", self._with_viewer(self._help), methods=["GET"]),
            Route(_SIGN_IN, self._login, methods=["GET", "POST"]),
            Route(_LINK, self._link, methods=["GET", "POST"]),
            Route(_SIGN_OUT, self._logout, methods=["POST"]),
            *self._oidc_routes(),
            *self._shared_routes(),
            *self._assets.routes(),
            *self._actions.routes(self._with_viewer),
            *(Route(PREFIX + page.path, self._with_viewer(self._page(page)), methods=["GET"]) for page in PAGES),
            *(Route(PREFIX + one.path, self._with_viewer(self._stream(one)), methods=["GET"]) for one in STREAMS),
            Route(PREFIX + "{path:path}", self._with_viewer(self._unknown), methods=["GET"]),
        ]

    def _oidc_routes(self) -> list[Route]:
        if self._oidc is None:
            return []
        return [
            Route(f"{PREFIX}oidc/start", self._to_issuer, methods=["GET"]),
            Route(f"{PREFIX}oidc/callback", self._from_issuer, methods=["GET"]),
        ]

    def _shared_routes(self) -> list[Route]:
        if self._shared is None:
            return []
        return [
            Route(_SHARED, self._open_share_link, methods=["GET", "POST"]),
            Route(f"{_SHARED}/{self._shared.path}", self._with_holder(self._shared_page), methods=["GET"]),
            *self._shared_actions.routes(self._with_holder),
            Route(_SHARED + "/{path:path}", self._unshared, methods=["GET"]),
        ]

    def _with_viewer(self, answer: Answer) -> Answer:
        """Return an answer for the caller of the session, which is looked up once."""

        async def answered(request: Request) -> Response:
            if self._sign_in is not None:
                try:
                    request.scope[_CALLER] = await self._sign_in.caller(request)
                except BrokerError as error:
                    return self._refused(request, _api_error(error))
            return await answer(request)

        return answered

    def _page(self, route: PageRoute) -> Answer:
        async def answer(request: Request) -> Response:
            if takes_shared(request) and not self._actions.has_receipt(request):
                return await self._shared_reads.answer(_shown_by(request), partial(read, request))
            return await read(request)

        async def read(request: Request) -> Response:
            try:
                page = await route.make(self._view(request))
                offers = await self._actions.offers(request, route.path, page)
            except ApiError as error:
                return self._refused(request, error)
            if page.redirect:
                return RedirectResponse(page.redirect, 303, headers=HEADERS)
            return self._show(request, page, offers=offers)

        return answer

    def _stream(self, route: StreamRoute) -> Answer:
        async def answer(request: Request) -> Response:
            last_event_id = request.headers.get("last-event-id", "")
            try:
                view = self._view(request)
            except ApiError as error:
                return self._refused(request, error)
            events = route.follow(view, last_event_id)
            return EventStreamResponse(self._during_session(request, events), HEADERS)

        return answer

    async def _during_session(self, request: Request, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield events until the session has ended, which is looked up every SESSION_SECONDS."""
        checked = time.monotonic()
        async with aclosing(events) as open_events:  # type: ignore[type-var]
            async for part in open_events:
                if _caller(request) is not None and time.monotonic() - checked >= SESSION_SECONDS:
                    assert self._sign_in is not None
                    if await self._sign_in.has_ended(request):
                        return
                    checked = time.monotonic()
                yield part

    async def _open(self, request: Request) -> Response:
        project = request.query_params.get("project", "")
        return RedirectResponse(f"{PREFIX}projects/{quote(project, safe=':')}", 303, headers=HEADERS)

    async def _to_home(self, _: Request) -> Response:
        return RedirectResponse(PREFIX, 308, headers=HEADERS)

    async def _help(self, request: Request) -> Response:
        return self._show(request, Page(template="help.html", title="Help"))

    # --- sign-in ------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        target = own_path(request.query_params.get("next", ""))
        if self._sign_in is None:
            return RedirectResponse(target, 303, headers=HEADERS)
        refused = ""
        if request.method == "POST":
            answer = await self._sign_in.by_credential(request, target)
            if isinstance(answer, Response):
                return _with_headers(answer)
            refused = answer
        data = {
            "refused": refused,
            "has_ended": request.method == "GET" and await self._sign_in.has_ended(request),
            "issuers": list(enumerate(self._oidc.titles if self._oidc is not None else ())),
            "target": quote(target, safe=""),
        }
        page = Page(template="login.html", title="Sign in", data=data)
        return self._show(request, page, status=401 if refused else 200)

    async def _link(self, request: Request) -> Response:
        if self._sign_in is None:
            return RedirectResponse(PREFIX, 303, headers=HEADERS)
        refused = ""
        if request.method == "POST":
            answer = await self._sign_in.by_link(request, own_path(request.query_params.get("next", "")))
            if isinstance(answer, Response):
                return _with_headers(answer)
            refused = answer
        data = {
            "refused": refused,
            "is_shared": False,
            "asks": self._sign_in.has_cookie(request),  # a link must not replace a session unseen
        }
        page = Page(template="link.html", title="Sign in by a link", data=data)
        return self._show(request, page, status=401 if refused else 200)

    async def _logout(self, request: Request) -> Response:
        response = RedirectResponse(_SIGN_IN, 303, headers=HEADERS)
        if self._sign_in is not None:
            try:
                await self._sign_in.end(request, response)
            except BrokerError as error:
                return self._refused(request, _api_error(error))
        return response

    async def _to_issuer(self, request: Request) -> Response:
        assert self._oidc is not None
        try:
            return _with_headers(await self._oidc.start(request))
        except BrokerError as error:
            return self._failed_sign_in(request, error)

    async def _from_issuer(self, request: Request) -> Response:
        assert self._oidc is not None
        try:
            response = _with_headers(await self._oidc.finish(request))
        except BrokerError as error:
            response = self._failed_sign_in(request, error)
        self._oidc.forget(response)
        return response

    def _failed_sign_in(self, request: Request, error: BrokerError) -> Response:
        page = Page(
            template="sign_in_failed.html", title="Sign-in failed", kind="error", data={"error": _api_error(error)}
        )
        return self._show(request, page, status=HTTP_STATUS[error.code])

    # --- share links --------------------------------------------------------------------------------------------

    async def _open_share_link(self, request: Request) -> Response:
        assert self._shared is not None
        refused = ""
        if request.method == "POST":
            answer = await self._shared.open(request)
            if isinstance(answer, Response):
                return _with_headers(answer)
            refused = answer
        data = {"refused": refused, "is_shared": True, "asks": False}
        page = Page(template="link.html", title="Shared page", kind="shared", data=data)
        return self._show(request, page, status=401 if refused else 200)

    def _with_holder(self, answer: Answer) -> Answer:
        """Return an answer for the holder of the link that the browser has opened."""

        async def answered(request: Request) -> Response:
            assert self._shared is not None
            try:
                await self._shared.find_holder(request)
            except BrokerError as error:
                return self._unshown(request, _api_error(error))
            return await answer(request)

        return answered

    async def _shared_page(self, request: Request) -> Response:
        assert self._shared is not None
        try:
            page = await self._shared.page(request)
            offers = await self._shared_actions.offers(request, SHARED_PAGE, page)
        except ApiError as error:
            return self._unshown(request, error)
        return self._show(request, page, offers=offers)

    async def _unshared(self, request: Request) -> Response:
        return self._unshown(
            request, ApiError(404, "NOT_FOUND", "The link that you have been given has no such page.")
        )

    def _unshown(self, request: Request, error: ApiError) -> Response:
        """Return the refusal of what the holder of a link has asked for."""
        page = Page(template="error.html", title=error.code, kind="shared", data={"error": error})
        return self._show(request, page, status=error.status)

    # --- refusals -----------------------------------------------------------------------------------------------

    async def _unknown(self, request: Request) -> Response:
        return self._refused(request, ApiError(404, "NOT_FOUND", f"There is no page {request.url.path}."))

    def _view(self, request: Request) -> View:
        return View(
            api=api_of(request),
            viewer=self._viewer(request),
            parts=request.path_params,
            query=dict(request.query_params),
            now=self._now(),
        )

    def _refuses(self, method: str, path: str) -> bool:
        return self._read_only and method not in _READS and path not in _SIGN_IN_FORMS

    def _refuse_action(self, request: Request) -> Response:
        why = "This console only reads (--console-read-only). Use the broker command or the API."
        return self._refused(request, ApiError(403, "PERMISSION_DENIED", why))

    def _viewer(self, request: Request) -> Viewer:
        return Viewer(
            caller=_caller(request),
            peer=peer_of(request),
            certificate=request.scope["state"].get(CLIENT_CERTIFICATE),
        )

    def _refused(self, request: Request, error: ApiError) -> Response:
        if error.status == 401 and self._sign_in is not None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{_SIGN_IN}?next={quote(here, safe='')}", 303, headers=HEADERS)
        page = Page(template="error.html", title=error.code, kind="error", data={"error": error})
        return self._show(request, page, status=error.status)

    def _show(self, request: Request, page: Page, *, status: int = 200, offers: Offers | None = None) -> Response:
        """Return a page with what all pages have around it.  `offers`: the actions of the page."""
        theme, caller = request.cookies.get(_THEME, ""), _caller(request)
        project = "" if page.kind == "shared" else request.path_params.get("project", "")
        data = {
            "page": page,
            "project": project,
            "here": request.url.path,
            "base": f"{request.url.scheme}://{request.url.netloc}",
            "query": dict(request.query_params),
            "as_of": format_timestamp(self._now()),
            "theme": theme if theme in THEMES else "",
            "signed_in": caller is not None,
            "principal": "" if caller is None else caller.member,
            "read_only": self._read_only,
            "offers": offers,
            "receipt": self._actions.receipt_in(request),
            **page.data,
        }
        response = compress_page(request, self._renderer.render(page.template, data, status=status))
        self._actions.forget_receipt(request, response)
        return response


def _caller(request: Request) -> Caller | None:
    """Return the caller of the session that `_with_viewer` has found; None: there is none."""
    caller: Caller | None = request.scope.get(_CALLER)
    return caller


def _shown_by(request: Request) -> Hashable:
    """Return what an answer depends on, besides the state of the broker."""
    certificate = request.scope["state"].get(CLIENT_CERTIFICATE)
    theme = request.cookies.get(_THEME, "")
    return _caller(request), certificate, str(request.url), theme, is_compressed(request)


def _with_headers(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response


def _api_error(error: BrokerError) -> ApiError:
    return ApiError(HTTP_STATUS[error.code], error.code, error.message)
