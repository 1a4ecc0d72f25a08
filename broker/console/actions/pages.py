"""The pages of actions: a form with its preview, what is done when it is sent, and the receipt.

The console sends an action once.  What became of one whose answer was lost is in the operations and the activity of
the project, to which the page leads; it never repeats the action by itself.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from broker.console.actions.action import (
    CURRENT,
    Action,
    Call,
    Change,
    FieldError,
    Note,
    Receipt,
    Secret,
    Target,
    Values,
    Weight,
)
from broker.console.actions.previews import Preview, asking, guarded, preview_of
from broker.console.api import ApiError, Viewer, api_of
from broker.console.cookies import Cookie
from broker.console.forms import read_form
from broker.console.page import Kind, Page, block_of
from broker.console.prefix import PREFIX
from broker.console.render import HEADERS

_RECEIPT_SECONDS = 120
_MAX_RECEIPT = 1_000  # characters of its text, which a cookie has room for
_MAX_TESTED = 100  # resources of a call that tests permissions
_TOO_LONG = "The form is longer than 16 MB, or is not a form."

_receipt = msgspec.json.Decoder(Receipt)

Answer = Callable[[Request], Awaitable[Response]]
Show = Callable[..., Response]
Refuse = Callable[[Request, ApiError], Response]


@dataclass(frozen=True, slots=True)
class Offer:
    """A button for an action on a page.

    `is_lossy`: it stands apart from the others.  `at_once`: it acts, in place of leading to a form.
    """

    title: str
    url: str
    is_lossy: bool = False
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Offers:
    """The actions of a page: those that its viewer may take, and the permissions that the others need, each with
    where it is needed ("": on the resource of the page).

    `rows`: the addresses of the actions of rows, by verb and full name.
    """

    allowed: Sequence[Offer] = ()
    missing: Sequence[tuple[str, str]] = ()
    rows: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def of_row(self, verb: str, name: str, **fields: str) -> str:
        """Return the address of an action on the resource of a row, with its form filled in; "" if not allowed."""
        url = self.rows.get((verb, name), "")
        return f"{url}?{urlencode(fields)}" if url and fields else url


class Asked(NamedTuple):
    """An action, and the resource that it is on."""

    action: Action
    target: Target

    @property
    def needed_on(self) -> str:
        return self.action.needed_on(self.target)

    @property
    def where(self) -> str:
        """The place where its permission is needed, in words; "": the resource or what it is in."""
        return "" if self.needed_on else "above projects"


class ActionPages:
    """The actions of one console."""

    def __init__(
        self,
        actions: Sequence[Action],
        *,
        now: Callable[[], datetime],
        viewer: Callable[[Request], Viewer],
        show: Show,
        refuse: Refuse,
        checks_permissions: bool,
        read_only: bool,
        secure: bool,
        kind: Kind = "page",
    ) -> None:
        """`show` renders a page, `refuse` an error in place of one.

        `checks_permissions`: authentication is on.  `read_only`: the console refuses forms, so none has a button.
        `secure`: the broker is reached over TLS.  `kind`: of its pages.
        """
        self._kind = kind
        self._actions = actions
        self._now = now
        self._viewer = viewer
        self._show = show
        self._refuse = refuse
        self._checks_permissions = checks_permissions
        self._read_only = read_only
        self._receipt = Cookie("broker_receipt", secure=secure)

    def routes(self, with_viewer: Callable[[Answer], Answer]) -> list[Route]:
        """`with_viewer` finds the caller of the session before a page answers."""
        return [
            Route(PREFIX + action.path, with_viewer(self._answering(action)), methods=["GET", "POST"])
            for action in self._actions
        ]

    async def offers(self, request: Request, path: str, page: Page) -> Offers:
        """Return the actions of a page of the route `path`, and those of its rows."""
        if self._read_only:
            return Offers()
        own = [
            Asked(action, _target(action, request))
            for action in self._actions
            if any(action.on + suffix == path for suffix in action.shown_on) and action.applies(page.data)
        ]
        of_rows = [
            Asked(action, target)
            for action in self._actions
            for name in page.row_actions.get(action.verb, ())
            if (target := _target_named(action, name)) is not None
        ]
        if not own and not of_rows:
            return Offers()
        permitted = await self.permitted(request, [*own, *of_rows])
        given = dict(request.path_params) | dict(request.query_params)
        return Offers(
            [
                Offer(
                    each.action.title,
                    _url(*each, given),
                    is_lossy=each.action.weight is Weight.LOSSY,
                    at_once=each.action.at_once,
                )
                for each in own
                if each in permitted
            ],
            sorted({(each.action.permission, each.where) for each in own if each not in permitted}),
            {(each.action.verb, each.target.name): _url(*each, {}) for each in of_rows if each in permitted},
        )

    async def permitted(self, request: Request, asked: Sequence[Asked]) -> Sequence[Asked]:
        """Return those that the viewer has the permission for, by one call for each project."""
        if not self._checks_permissions:
            return asked
        granted: dict[str, set[str]] = {}
        for project in {each.target.project for each in asked}:
            of_project = [each for each in asked if each.target.project == project]
            permissions = sorted({each.action.permission for each in of_project if each.action.permission})
            if not permissions:
                continue
            names = sorted({each.needed_on for each in of_project})[:_MAX_TESTED]
            answer = await api_of(request).send(
                self._viewer(request),
                "POST",
                f"{project}:testIamPermissions",
                body={"permissions": permissions, "resources": names},
            )
            granted |= {each["name"]: set(each.get("permissions", ())) for each in answer.get("resources", ())}
        return [
            each
            for each in asked
            if not each.action.permission or each.action.permission in granted.get(each.needed_on, ())
        ]

    def _answering(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            target = _target(action, request)
            try:
                if request.method == "POST":
                    return await self._act(request, action, target)
                return await self._first(request, action, target)
            except ApiError as error:
                return self._refuse(request, error)

        return answer

    async def _first(self, request: Request, action: Action, target: Target) -> Response:
        """Return the form with the defaults, how things are now, and what the URL says."""
        given = {
            each.name: request.query_params[each.name]
            for each in action.fields
            if each.name in request.query_params
        }
        texts = {each.name: each.default for each in action.fields}
        current = await self._current(request, action, target, texts | given)
        if action.initial is not None and current is not None:
            texts.update(action.initial(current))
        if _is_sent(request, action):
            texts.update({each.name: "" for each in action.fields if each.kind == "check"})
        return await self._form(request, action, target, texts | given, current=current)

    async def _current(
        self, request: Request, action: Action, target: Target, texts: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Return how things are now, for an action that needs it; None if the form does not say yet of what."""
        if action.initial is None and action.changes is None:
            return None
        call = action.reads(target, texts)
        if call is None:
            return None
        try:
            return await self._send(request, call)
        except ApiError as error:
            if action.may_do_without and error.status in (403, 404):
                return None
            raise

    async def _notes(self, request: Request, action: Action, target: Target, values: Values) -> Sequence[Note]:
        """Return the sentences about what the action would meet, after the calls that they need."""
        if action.asks is None:
            return ()
        calls = action.asks(target, values)
        answers = await asyncio.gather(*(block_of(self._send(request, call)) for call in calls.values()))
        return action.notes(values, dict(zip(calls, answers, strict=True)))

    async def _templates(self, request: Request, action: Action, target: Target) -> Sequence[dict[str, Any]]:
        """Return the templates of the project for the resource; none if the viewer may not see them."""
        if action.templates is None:
            return []
        try:
            found = await self._send(request, action.templates(target))
        except ApiError as error:
            if error.status != 403:
                raise
            return []
        return [one for one in found.get("messageTemplates", ()) if one.get("topic", target.name) == target.name]

    async def _form(
        self,
        request: Request,
        action: Action,
        target: Target,
        texts: Mapping[str, str],
        *,
        current: dict[str, Any] | None = None,
        error: str = "",
        wrong: str = "",
        status: int = 200,
    ) -> Response:
        answers = status not in (401, 503)
        permitted = not answers or bool(await self.permitted(request, [Asked(action, target)]))
        preview: Preview | None = None
        changes: Sequence[Change] | None = None
        notes: Sequence[Note] = ()
        note, values = "", dict[str, Any]()
        try:
            values.update(action.read(texts, self._now()))
        except FieldError as unreadable:
            if not error and (unreadable.field in request.query_params or _is_sent(request, action)):
                error, wrong = str(unreadable), unreadable.field
        else:
            if action.changes is not None and current is not None:
                changes = action.changes(current, values)
            if action.has_preview and answers and permitted and not self._read_only:
                try:
                    preview = preview_of(await self._send(request, asking(action.call(target, values))))
                except ApiError as refused:
                    if refused.status == 401:
                        raise
                    if request.query_params or refused.status != 400:  # else the form is empty yet
                        note = refused.message
            if answers and permitted and not self._read_only:
                notes = await self._notes(request, action, target, {**values, CURRENT: current or {}})
        templates = await self._templates(request, action, target) if answers and permitted else []
        page = Page(
            template="action.html",
            title=action.title,
            kind=self._kind,
            name=target.name,
            data={
                "action": action,
                "target": target,
                "texts": texts,
                "preview": preview,
                "changes": changes,
                "notes": notes,
                "is_refused": any(each.is_refusal for each in notes),
                "etag": action.version(current or {}),
                "back": action.page(target),
                "templates": templates,
                "label": ""
                if preview is None and action.has_preview
                else action.label.format(count=preview.number if preview else ""),
                "nothing": preview is not None and action.weight is Weight.BOUNDED and not preview.count,
                "confirm": preview is not None
                and preview.loses_something
                and action.weight is Weight.LOSSY
                and not action.can_be_undone(values),
                "note": note,
                "error": error,
                "wrong": wrong,
                "missing": "" if permitted else action.permission,
                "where": Asked(action, target).where,
                "equivalent": action.command(target, values),
            },
        )
        return self._show(request, page, status=status)

    async def _act(self, request: Request, action: Action, target: Target) -> Response:
        form = await read_form(request)
        if form is None:
            raise ApiError(400, "INVALID_ARGUMENT", _TOO_LONG)
        try:
            values = action.read(form, self._now())
        except FieldError as error:
            return await self._form(request, action, target, form, error=str(error), wrong=error.field, status=400)
        current: dict[str, Any] | None = None
        try:
            if action.changes is not None:
                current = await self._current(request, action, target, form)
                if current is not None:
                    await self._refuse_by_permission(request, action, target, current)
                    values = {**values, CURRENT: _as_shown(action, current, form)}
            call = _confirmed(action, target, values, form)
            await self.check(request, action, target, values)
            answer = await self._send(request, call)
        except FieldError as error:
            return await self._form(
                request, action, target, form, current=current, error=str(error), wrong=error.field, status=400
            )
        except ApiError as error:
            text = error.message
            if error.status == 401:
                text = f"You are not signed in any more. Sign in in another tab, then send this again. ({text})"
            if error.code == "ABORTED":
                text = f"Nothing was done: it has changed since it was shown. {text} These are the new numbers."
            return await self._form(request, action, target, form, current=current, error=text, status=error.status)
        if action.secret is not None:
            return self._reveal(request, action, target, action.secret(target, values, answer))
        return self._done(request, action.receipt(target, values, answer))

    async def _refuse_by_permission(
        self, request: Request, action: Action, target: Target, current: dict[str, Any]
    ) -> None:
        """Refuse what the viewer may not do before a version is compared that the API does not compare.

        Raises ApiError.
        """
        if "etag" in current or not action.version(current):
            return
        if not await self.permitted(request, [Asked(action, target)]):
            raise ApiError(403, "PERMISSION_DENIED", f"Permission {action.permission} denied on {target.name}.")

    async def check(self, request: Request, action: Action, target: Target, values: Values) -> None:
        """Check what the API does not, before an action is sent.  Raises ApiError."""

    def _reveal(self, request: Request, action: Action, target: Target, secret: Secret) -> Response:
        """Return a page with what is shown once: it is in no address, no cookie and no log."""
        data = {"secret": secret, "action": action, "target": target, "back": action.page(target)}
        page = Page(template="secret.html", title=secret.title, kind=self._kind, name=target.name, data=data)
        return self._show(request, page)

    async def _send(self, request: Request, call: Call) -> dict[str, Any]:
        body = call.body if call.method in ("POST", "PUT", "PATCH") else None
        return await api_of(request).send(
            self._viewer(request), call.method, call.path, body=body, query=call.query
        )

    def _done(self, request: Request, receipt: Receipt) -> Response:
        location = PREFIX + quote(receipt.path, safe="/:@")
        wants_json = "application/json" in request.headers.get("accept", "")
        response: Response = (
            JSONResponse({"location": location}, headers=HEADERS)
            if wants_json
            else RedirectResponse(location, 303, headers=HEADERS)
        )
        shown = replace(receipt, text=receipt.text[:_MAX_RECEIPT])
        value = base64.urlsafe_b64encode(msgspec.json.encode(shown)).decode()
        self._receipt.set(response, value, seconds=_RECEIPT_SECONDS)
        return response

    def receipt_in(self, request: Request) -> Receipt | None:
        """Return the receipt of the action before, for the page that follows it."""
        try:
            return _receipt.decode(base64.urlsafe_b64decode(self._receipt.of(request)))
        except ValueError:  # there is none, or somebody made it up
            return None

    def has_receipt(self, request: Request) -> bool:
        """Return whether the answer to a request has the browser forget a receipt."""
        return bool(self._receipt.of(request))

    def forget_receipt(self, request: Request, response: Response) -> None:
        """Have the browser forget the receipt, which this page shows."""
        if self.has_receipt(request):
            self._receipt.delete(response)


def _confirmed(action: Action, target: Target, values: Values, form: Mapping[str, str]) -> Call:
    """Return the call with the limits that its preview showed.  Raises FieldError."""
    call = action.call(target, values)
    if not action.has_preview:
        return call
    count, as_of = form.get("expectedCount", ""), form.get("asOf", "")
    if not (count.isascii() and count.isdigit() and len(count) <= 18 and as_of):
        raise FieldError("", "Look at what this would do first; nothing was done.")
    loses = action.weight is Weight.LOSSY and (count != "0" or form.get("references", "0") != "0")
    if loses and not action.can_be_undone(values) and form.get("confirm", "").strip() != target.id:
        raise FieldError("confirm", f"Type {target.id} to confirm; nothing was done.")
    return guarded(call, count=count, as_of=as_of, is_estimated=form.get("estimated") == "true")


def _as_shown(action: Action, current: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """Return how things are, with the etag that the page has shown: the API compares it.

    The version of a resource without an etag is compared here.  Raises FieldError, ApiError.
    """
    version, shown = action.version(current), form.get("etag", "")
    if not version:
        return current
    if not shown:
        raise FieldError("", "Look at what this would do first; nothing was done.")
    if "etag" in current:
        return {**current, "etag": shown}
    if shown != version:
        raise ApiError(409, "ABORTED", f"The page has shown {shown}, and {version} is the newest now.")
    return current


def _is_sent(request: Request, action: Action) -> bool:
    """Return whether the URL has all of a form, as browsers send it: without its boxes that are not checked."""
    typed = {each.name for each in action.fields if each.kind != "check"}
    return bool(request.query_params) and typed <= request.query_params.keys()


def _target(action: Action, request: Request) -> Target:
    parts = dict(request.path_params)
    return Target(parts, action.on.format(**parts))


def _target_named(action: Action, name: str) -> Target | None:
    """Return the resource of that full name, if the action is on such resources."""
    pattern, parts = action.on.split("/"), name.split("/")
    if len(pattern) != len(parts):
        return None
    ids = {own[1:-1]: part for own, part in zip(pattern, parts, strict=True) if own.startswith("{")}
    return Target(ids, name) if action.on.format(**ids) == name else None


def _url(action: Action, target: Target, texts: Mapping[str, str]) -> str:
    given = {each.name: texts[each.name] for each in action.fields if texts.get(each.name)}
    return f"{PREFIX}{quote(target.name, safe='/:@')}:{action.verb}" + (f"?{urlencode(given)}" if given else "")
