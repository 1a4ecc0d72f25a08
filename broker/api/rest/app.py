"""The REST API: routes requests to the handlers of calls.

It uses no framework: a call is found by one dictionary lookup, and a hot call pays for nothing that it does not
use.  Starlette serves the pages beside the API: health, metrics and the specification.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.gate import CHALLENGE, Gate
from broker.api.limits.address_turns import AddressTurns
from broker.api.limits.admission import Admission, admission_of
from broker.api.limits.answer_memory import LARGE_ANSWER_BYTES, AnswerMemory
from broker.api.limits.hot_calls import HotCalls
from broker.api.limits.request_memory import RequestMemory
from broker.api.limits.resource_calls import ResourceCalls, bounded
from broker.api.logging.auditor import Auditor
from broker.api.logging.call_log import CallLog
from broker.api.logging.changes import changed_in_json
from broker.api.payer import payer_of, payer_of_error
from broker.api.permissions import Needs
from broker.api.rest.body import BodyReader
from broker.api.rest.call import Call
from broker.api.rest.credentials import authorization_of, shown_by
from broker.api.rest.errors import HTTP_STATUS, encode_error
from broker.api.rest.query_parameters import QueryParameters
from broker.api.rest.routes import Handler, Route
from broker.api.rest.system_parameters import AnswerForm, read_answer_form, read_headers, read_query
from broker.api.rpc import Kind, Rpc
from broker.api.steps import R
from broker.fairness.loop_turns import LoopTurns
from broker.model.errors import BrokerError, Internal, InvalidArgument, NotFound, PermissionDenied, Unavailable
from broker.model.names import project_within
from broker.net.http1.exchange import Exchange
from broker.net.http1.head import Head
from broker.observability.timing import timed

PREFIX = "/v1/"
_PREFIX = PREFIX.encode()
_OK = 200
_HEADERS = b"content-type: application/json; charset=UTF-8\r\n"
MAX_KNOWN_PATHS = 20_000  # some 10 MB
MAX_KNOWN_PATH = 512  # bytes


class _Target(NamedTuple):
    rpc: Rpc
    handler: Handler
    admission: Admission
    parameters: QueryParameters
    is_audited: bool  # also if it succeeds


class _Reading(NamedTuple):
    """The call that a head is of.  `form`: of the answer; None: as the handler makes it."""

    target: _Target
    name: str
    handler: Handler
    query: Mapping[str, str]
    form: AnswerForm | None


class RestApi:
    """Serves `routes` below /v1/.

    `requests` and `answers` are budgets of the process: of bodies from their arrival to the answer, and of large
    answers until their readers have taken them.  `resource_calls` bounds the calls that are not hot,
    `hot_calls` small ones that are.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        turns: LoopTurns,
        requests: RequestMemory,
        answers: AnswerMemory,
        resource_calls: ResourceCalls,
        hot_calls: HotCalls,
        calls: CallLog,
        address_turns: AddressTurns,
        gate: Gate | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        """`gate` checks the permission of each call (None: every call is allowed).  `auditor` records all calls.
        `turns` of the event loop: for long requests and answers.
        """
        self._turns = turns
        self._gate = gate
        self._auditor = auditor
        self._calls = calls
        self._address_turns = address_turns
        self._requests, self._answers = requests, answers
        self._bodies = BodyReader(requests, turns)
        self._targets = _targets(routes, requests, resource_calls, hot_calls, auditor)
        self._without_ids = _collections_without_ids(routes)
        self._found: dict[tuple[str, bytes], tuple[_Target, str]] = {}  # the results of _look_up, for short paths

    def has(self, path: bytes) -> bool:
        """Whether a path, as it was sent, is of the API."""
        return path.startswith(_PREFIX) or (b"%" in path and unquote(path).startswith(PREFIX))

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Log a defect of what answers a request."""
        self._calls.fault(_shown(exchange.head), error, exchange.request_id)

    async def serve(self, exchange: Exchange, *, known: Caller | None = None) -> None:
        """Answer a request, whatever happens.

        `known`: the caller of a request that comes from within the process, and not from a connection.
        """
        head = exchange.head
        status, retry_after, held, large, refused, name, form = _OK, None, 0, None, False, "", None
        began = self._calls.begin() if self._calls.on else 0.0
        try:
            reading: _Reading = head.reading or self._read_head(head)
            target, name, form = reading.target, reading.name, reading.form
            if self._gate is not None or target.is_audited:
                answer = await self._serve_guarded(exchange, reading, known)
            else:
                arriving = self._bodies.read(exchange, target.admission, project_within(name))
                body, held, large = await (_noted(arriving) if began else arriving)
                call = Call(self._turns, name, reading.query, body, exchange, self._answers, large=large)
                self._requests.decoded += len(body)
                answer = await reading.handler(call)
        except BrokerError as error:
            self._calls.refused(error, exchange.request_id)
            status, answer, retry_after = encode_error(error)
            refused = True
        except asyncio.CancelledError:  # the server cancels the remaining calls some time after it has stopped
            status, answer, retry_after = encode_error(Unavailable("The broker stops; try again."))
        except Exception as error:
            self.failed(exchange, error)
            fault = Internal("The broker met an unexpected fault; its log has the details.")
            status, answer, retry_after = encode_error(fault)
        finally:
            self._bodies.let_go(held, large)
        if form is not None:
            answer = form.of(answer) if status == _OK else form.of_error(answer)
        if refused:
            gate = self._gate
            known = gate.warm(authorization_of(head)) if gate is not None else None
            resource = head.path[len(_PREFIX) :].decode("ascii")
            await self._calls.hold_back(payer_of_error(gate, resource, known), exchange.peer)
        if began:
            self._calls.answered(_shown(head), status, began, exchange.peer, exchange.request_id)
        exchange.respond(status, _HEADERS if status == _OK else _headers(status, retry_after), answer)
        if len(answer) >= LARGE_ANSWER_BYTES:
            await self._taken(exchange, name, len(answer))

    async def _serve_guarded(self, exchange: Exchange, reading: "_Reading", given: Caller | None) -> bytes:
        """The answer to a call that passes the gate, or is reported to the auditor."""
        target, name, needs = reading.target, reading.name, reading.target.rpc.needs
        gate, auditor, caller, held, large = self._gate, self._auditor, ANONYMOUS, 0, None
        required: Sequence[Required] = ()
        try:
            if gate is not None:
                changes = gate.changes
                caller = given or gate.warm(authorization_of(exchange.head)) or await self._caller(exchange, needs)
                if caller.calls is not None and target.rpc.name not in caller.calls:
                    raise PermissionDenied("The link that you have been given does not permit this.")
                if needs.all:
                    passed = gate.passed(caller, needs, name)
                    required = await gate.allow(caller, needs, name) if passed is None else passed
            with timed("body"):
                payer = payer_of(needs, name, caller)
                body, held, large = await self._bodies.read(exchange, target.admission, payer, caller)
            if gate is not None and gate.changes != changes:  # changed while the body arrived
                caller = given or await self._caller(exchange, needs)
                if needs.all:
                    required = await gate.allow(caller, needs, name)
            answers = self._answers
            self._requests.decoded += len(body)
            call = Call(
                self._turns, name, reading.query, body, exchange, answers, caller, gate, large, required, needs
            )
            if gate is not None and target.rpc.kind is Kind.WAITING:
                answer = await _held(gate, reading.handler, call)
            else:
                answer = await reading.handler(call)
        except BrokerError as error:
            if auditor is not None:
                auditor.called(target.rpc, name, caller, exchange.peer, error)
            raise
        finally:
            self._bodies.let_go(held, large)
        if auditor is not None and target.is_audited:
            await self._report(auditor, target.rpc, call, answer)
        return answer

    async def _caller(self, exchange: Exchange, needs: Needs) -> Caller:
        """Authenticates the caller.  Raises Unauthenticated, Unavailable."""
        assert self._gate is not None
        shown = shown_by(exchange.head, exchange.client_certificate)
        await self._address_turns.to_verify(exchange.peer, shown.authorization)
        return await self._gate.caller(shown, needs)

    async def _report(self, auditor: Auditor, rpc: Rpc, call: Call, answer: bytes) -> None:
        """Reports a successful call to the auditor."""
        exchange = call.exchange
        if not rpc.audit.is_change:
            auditor.called(rpc, call.name, call.caller, exchange.peer)
            return
        if call.is_preview:
            auditor.looked(rpc, call.name, call.caller, exchange.peer)
            return
        resource, fields = changed_in_json(rpc, call.name, call.update_mask, call.body, answer)
        request_id = exchange.request_id
        await auditor.changed(rpc, resource, call.caller, exchange.peer, fields=fields, request_id=request_id)

    async def _taken(self, exchange: Exchange, name: str, size: int) -> None:
        """Holds the bytes of an answer until the reader has taken all but the last 64 KB."""
        with self._answers.holding(name, size):
            await exchange.taken()

    def _read_head(self, head: Head) -> "_Reading":
        """Reads the call from a head.  The result is kept with the head, which clients send again and again."""
        said = read_headers(head)
        target, name = self._find(said.method, head.path)
        query = read_query(head.query)
        target.parameters.check(query)
        form = read_answer_form(said.mask, query, target.rpc.name)
        handler = _with_query_in_body(target) if said.query_in_body else target.handler
        reading = head.reading = _Reading(target, name, handler, query, form)
        return reading

    def _find(self, method: str, path: bytes) -> tuple[_Target, str]:
        """The target of a call and the name in its path.  Clients call the same few paths again and again."""
        found = self._found.get((method, path))
        if found is None:
            found = self._look_up(method, path)
            if len(path) <= MAX_KNOWN_PATH:
                if len(self._found) >= MAX_KNOWN_PATHS:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _look_up(self, method: str, path: bytes) -> tuple[_Target, str]:
        try:
            parts = [unquote(part, errors="strict") for part in path.decode("ascii").split("/")]
        except UnicodeDecodeError:
            raise InvalidArgument("The path is not UTF-8.") from None
        if any("\0" in part for part in parts):
            raise InvalidArgument("The path has the character U+0000.")  # PostgreSQL's text cannot hold it
        if len(parts) < 3 or parts[1] != "v1":  # decoded as a whole it begins with /v1/: one of its slashes is %2F
            raise NotFound(f"The requested method was not found ({method} {'/'.join(parts)}).")
        segments = parts[2:]
        last, colon, verb = segments[-1].partition(":")
        segments[-1] = last
        # "projects/p/topics/t" -> "projects/*/topics/*"; an odd segment at the end is a collection or a plain verb
        has_ids = segments[0] not in self._without_ids
        shape = "/".join("*" if has_ids and index % 2 else segment for index, segment in enumerate(segments))
        target = self._targets.get((method, shape + colon + verb))
        if target is None or not all(segments):
            raise NotFound(
                f"The requested method was not found ({method} {PREFIX}{'/'.join(segments)}{colon}{verb})."
            )
        return target, "/".join(segments[: len(segments) // 2 * 2])


def _with_query_in_body(target: _Target) -> Handler:
    async def handle(call: Call) -> bytes:
        call.query, call.body = {**call.query, **read_query(call.body)}, b""
        target.parameters.check(call.query)
        return await target.handler(call)

    return handle


async def _noted(reading: Awaitable[R]) -> R:
    with timed("body"):
        return await reading


def _targets(
    routes: Sequence[Route],
    requests: RequestMemory,
    resource_calls: ResourceCalls,
    hot_calls: HotCalls,
    auditor: Auditor | None,
) -> dict[tuple[str, str], _Target]:
    """Returns the targets by method and path."""

    return {
        (route.method, route.path): _Target(
            route.rpc,
            bounded(
                route.rpc.kind,
                route.handler,
                resource_of=_resource_of,
                payer=_payer(route.rpc.needs),
                resource_calls=resource_calls,
                hot_calls=hot_calls,
            ),
            admission_of(route.rpc.size, requests),
            QueryParameters(route.parameters),
            auditor is not None and auditor.enters(route.rpc),
        )
        for route in routes
    }


def _collections_without_ids(routes: Sequence[Route]) -> frozenset[str]:
    """Returns the collections whose members are not resources: the reports on the broker itself."""
    paths = (route.path for route in routes if "/" in route.path and "*" not in route.path)
    return frozenset(path.partition("/")[0] for path in paths)


def _resource_of(call: Call) -> str:
    return call.name


def _payer(needs: Needs) -> Callable[[Call], str]:
    return lambda call: payer_of(needs, call.name, call.caller)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A call that waits, as the gate sees it: once it is answered its handler takes it for one that hung up."""

    call: Call

    @property
    def caller(self) -> Caller:
        return self.call.caller

    @property
    def required(self) -> Sequence[Required]:
        return self.call.required

    def end(self, error: BrokerError) -> None:
        status, answer, retry_after = encode_error(error)
        self.call.exchange.respond(status, _headers(status, retry_after), answer)


async def _held(gate: Gate, handler: Handler, call: Call) -> bytes:
    waiting = _Waiting(call)
    gate.hold(waiting)
    try:
        return await handler(call)
    finally:
        gate.let_go(waiting)


def _headers(status: int, retry_after: int | None) -> bytes:
    if status == HTTP_STATUS["UNAUTHENTICATED"]:
        return b"%bwww-authenticate: %b\r\n" % (_HEADERS, CHALLENGE)
    return _HEADERS if retry_after is None else b"%bretry-after: %d\r\n" % (_HEADERS, retry_after)


def _shown(head: Head) -> str:
    """The call, for the log; the query is the caller's own."""
    return f"{head.method} {unquote(head.path.decode('ascii'))}"
