"""The gRPC API: connects the streams of an HTTP/2 connection to the handlers of calls.

gRPC itself is a small protocol (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md): a call is a stream, its
:path names the method, its body consists of messages with a prefix of five bytes, and the trailers have the status.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from typing import Any, Protocol

from broker.api.gate import Gate
from broker.api.grpc.call import UnaryCall
from broker.api.grpc.messages import unsupported_encoding
from broker.api.grpc.methods import Method, Unary
from broker.api.grpc.responses import refuse, refuse_content_type
from broker.api.grpc.session import Session, Target
from broker.api.grpc.streaming import StreamingRpc
from broker.api.grpc.unary import UnaryRpc
from broker.api.limits.address_turns import AddressTurns
from broker.api.limits.admission import admission_of
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.limits.hot_calls import HotCalls
from broker.api.limits.request_memory import RequestMemory
from broker.api.limits.resource_calls import ResourceCalls, bounded
from broker.api.logging.auditor import Auditor
from broker.api.logging.call_log import CallLog, resource_of
from broker.api.payer import payer_of
from broker.api.permissions import Needs
from broker.fairness.loop_turns import LoopTurns
from broker.fairness.shared_capacity import SharedCapacity
from broker.model.errors import Unavailable, Unimplemented
from broker.net.http1.request_ids import HEADER, RequestIds
from broker.net.http2.connection import Http2Connection, Registry
from broker.net.http2.rotation import Rotation
from broker.net.http2.stream import NOBODY, Receiver, Stream

LEAST_STREAM_BYTES = 64_000_000  # of the streams of all connections, even if the memory for requests is smaller
MAX_RUNNING = 2_000  # calls of a connection, including those that their callers have cancelled

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class Others(Protocol):
    """Accepts the requests of a connection that are not gRPC."""

    def accept(self, stream: Stream) -> Receiver: ...


class GrpcApi:
    """Serves `methods`.  The limits are the process's, as RestApi's."""

    def __init__(
        self,
        methods: Collection[Method],
        *,
        requests: RequestMemory,
        answers: AnswerMemory,
        resource_calls: ResourceCalls,
        hot_calls: HotCalls,
        calls: CallLog,
        turns: LoopTurns,
        address_turns: AddressTurns,
        gate: Gate | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        """`gate` checks the permission of each call (None: every call is allowed).  `auditor` records all calls.
        `turns` of the event loop: for connections that have sent much, and for long requests.
        """
        self._turns = turns
        self._address_turns = address_turns
        self._rotation = Rotation(turns.call)
        self._stream_memory = SharedCapacity(max(requests.limit, LEAST_STREAM_BYTES))
        self._auditor = auditor
        self._calls = calls
        self._request_ids = RequestIds()
        self._requests, self._answers = requests, answers
        self._targets = {
            method.path: Target(
                rpc=method.rpc,
                unary=_bounded(method, resource_calls, hot_calls),
                streaming=method.streaming,
                admission=admission_of(method.rpc.size, requests),
                gate=None if method.rpc.needs.is_open else gate,
                request_class=method.request_class,
            )
            for method in methods
        }
        self._served = {method.service.encode() for method in methods}

    def connection(
        self,
        connections: Registry,
        tasks: set[asyncio.Task[Any]],
        others: Callable[[Http2Connection], Others] | None = None,
        **options: float,
    ) -> Http2Connection:
        """The protocol of a new connection.  `others` accept requests that are not gRPC; None: they are refused.

        It keeps itself among `connections`, and its calls among `tasks`, for as long as they last: the server that
        stops waits for them.  `options` are Http2Connection's.
        """
        session = Session(
            tasks,
            self._requests,
            self._answers,
            self._calls,
            self._turns,
            self._address_turns,
            self._auditor,
        )
        connection = Http2Connection(
            lambda stream: self._accept(session, stream),
            connections,
            self._rotation,
            self._stream_memory,
            **options,
        )
        session.peer = connection.peer_address
        session.certificate = lambda: connection.client_certificate
        session.others = None if others is None else others(connection).accept
        return connection

    def _accept(self, session: Session, stream: Stream) -> Receiver:
        fields = stream.headers.fields
        if fields[b":method"] != b"POST" or not fields.get(b"content-type", b"").startswith(b"application/grpc"):
            if session.others is not None:
                return session.others(stream)
            refuse_content_type(stream)
            return NOBODY
        target = self._targets.get(fields[b":path"])
        encoding = fields.get(b"grpc-encoding", b"identity")
        request_id = self._request_ids.of(fields.get(HEADER))
        if target is None:
            refuse(stream, self._unknown(fields[b":path"]), request_id)
        elif encoding not in (b"identity", b"gzip", b"deflate"):
            refuse(stream, unsupported_encoding(encoding), request_id)
        elif len(session.running) >= MAX_RUNNING:
            error = Unavailable("Too many calls of this connection are under way; try again.")
            self._calls.refused(error, request_id)
            refuse(stream, error, request_id)
        else:
            rpc = UnaryRpc if target.unary is not None else StreamingRpc
            timeout = _timeout(fields.get(b"grpc-timeout"))
            return rpc(session, stream, target, encoding, timeout, request_id=request_id)
        return NOBODY

    def _unknown(self, path: bytes) -> Unimplemented:
        service = path[1:].partition(b"/")[0]
        what = "method" if service in self._served else "service"
        return Unimplemented(f"There is no such {what} ({path.decode('latin-1')}).")


def _bounded(method: Method, resource_calls: ResourceCalls, hot_calls: HotCalls) -> Unary | None:
    if method.unary is None:
        return None
    return bounded(
        method.rpc.kind,
        method.unary,
        resource_of=_resource_of,
        payer=_payer(method.rpc.needs),
        resource_calls=resource_calls,
        hot_calls=hot_calls,
    )


def _resource_of(_: UnaryCall, body: bytes) -> str:
    return resource_of(body)


def _payer(needs: Needs) -> Callable[[UnaryCall, bytes], str]:
    return lambda call, body: payer_of(needs, resource_of(body), call.caller)


def _timeout(value: bytes | None) -> float | None:
    """The seconds of a grpc-timeout; None if there is none, or none that can be read."""
    match = _TIMEOUT.fullmatch(value) if value else None
    return int(match[1]) * _UNITS[match[2]] if match else None
