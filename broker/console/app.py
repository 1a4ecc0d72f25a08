"""The routes of the console below /console/: pages, sign-in, help and files.

The page of a resource is "/console/" followed by its name, as its call is "/v1/" followed by its name.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from broker.console.api import ApiError, Viewer, api_of
from broker.console.assets import Assets
from broker.console.compression import compress_page
from broker.console.page import Page, PageRoute, View
from broker.console.prefix import PREFIX
from broker.console.render import HEADERS, Renderer
from broker.console.routes import PAGES
from broker.console.sign_in import SignIn
from broker.model.timestamps import format_timestamp
from broker.net.http1.asgi import CLIENT_CERTIFICATE

THEMES = ("light", "dark")
_THEME = "broker_theme"  # a cookie


class Console:
    """The console of one process."""

    def __init__(self, *, version: str, now: Callable[[], datetime], sign_in: SignIn | None = None) -> None:
        """`version`: the broker's.  `now`: its clock.  `sign_in`: None where authentication is off."""
        self._now = now
        self._assets = Assets()
        self._renderer = Renderer(self._assets, version=version)
        self._sign_in = sign_in

    def routes(self) -> list[Route]:
        return [
            Route(f"{PREFIX}open", self._open, methods=["GET"]),
            Route(PREFIX.rstrip("/"), self._to_home, methods=["GET"]),
            Route(f"{PREFIX}help", self._help, methods=["GET"]),
            Route(f"{PREFIX}login", self._login, methods=["GET", "POST"]),
            Route(f"{PREFIX}logout", self._logout, methods=["POST"]),
            *self._assets.routes(),
            *(Route(PREFIX + page.path, self._page(page), methods=["GET"]) for page in PAGES),
            Route(PREFIX + "{path:path}", self._unknown, methods=["GET"]),
        ]

    def _page(self, route: PageRoute) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            view = View(
                api=api_of(request),
                viewer=self._viewer(request),
                parts=request.path_params,
                query=dict(request.query_params),
            )
            try:
                page = await route.make(view)
            except ApiError as error:
                return self._refused(request, error)
            if page.redirect:
                return RedirectResponse(page.redirect, 303, headers=HEADERS)
            return self._show(request, page)

        return answer

    async def _open(self, request: Request) -> Response:
        project = request.query_params.get("project", "")
        return RedirectResponse(f"{PREFIX}projects/{quote(project, safe=':')}", 303, headers=HEADERS)

    async def _to_home(self, _: Request) -> Response:
        return RedirectResponse(PREFIX, 308, headers=HEADERS)

    async def _help(self, request: Request) -> Response:
        return self._show(request, Page(template="help.html", title="Help", kind="console", section="help"))

    async def _login(self, request: Request) -> Response:
        target = _own_path(request.query_params.get("next", ""))
        if self._sign_in is None:
            return RedirectResponse(target, 303, headers=HEADERS)
        refused = ""
        if request.method == "POST":
            answer = await self._sign_in.answer(request, target)
            if isinstance(answer, Response):
                answer.headers.update(HEADERS)
                return answer
            refused = answer
        page = Page(template="login.html", title="Sign in", kind="console", data={"refused": refused})
        return self._show(request, page, status=401 if refused else 200)

    async def _logout(self, request: Request) -> Response:
        response = RedirectResponse(f"{PREFIX}login", 303, headers=HEADERS)
        if self._sign_in is not None:
            self._sign_in.forget(request, response)
        return response

    async def _unknown(self, request: Request) -> Response:
        return self._refused(request, ApiError(404, "NOT_FOUND", f"There is no page {request.url.path}."))

    def _viewer(self, request: Request) -> Viewer:
        client = request.client
        return Viewer(
            credentials=() if self._sign_in is None else self._sign_in.credentials(request),
            peer=None if client is None else (client.host, client.port),
            certificate=request.scope["state"].get(CLIENT_CERTIFICATE),
        )

    def _refused(self, request: Request, error: ApiError) -> Response:
        if error.status == 401 and self._sign_in is not None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{PREFIX}login?next={quote(here, safe='')}", 303, headers=HEADERS)
        page = Page(template="error.html", title=error.code, kind="error", data={"error": error})
        return self._show(request, page, status=error.status)

    def _show(self, request: Request, page: Page, *, status: int = 200) -> Response:
        project = request.path_params.get("project", "")
        theme = request.cookies.get(_THEME, "")
        data = {
            "page": page,
            "project": project,
            "here": request.url.path,
            "base": f"{request.url.scheme}://{request.url.netloc}",
            "query": dict(request.query_params),
            "as_of": format_timestamp(self._now()),
            "theme": theme if theme in THEMES else "",
            "signed_in": self._sign_in is not None and bool(self._sign_in.credentials(request)),
            **page.data,
        }
        return compress_page(request, self._renderer.render(page.template, data, status=status))


def _own_path(path: str) -> str:
    """Return a path below /console/, so that a link to the sign-in leads nowhere else."""
    return path if path.startswith(PREFIX) and "//" not in path and "\\" not in path else PREFIX
