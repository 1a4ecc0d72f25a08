"""The gRPC side of a call: its service and its handler."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from broker.api.generated.messages import request_of
from broker.api.grpc.call import StreamingCall, UnaryCall
from broker.api.rpc import Rpc

Unary = Callable[[UnaryCall, bytes], Awaitable[bytes]]
Streaming = Callable[[StreamingCall], Awaitable[None]]


class Grpc(NamedTuple):
    """The service that has the method of a call, with its package, and the handler: exactly one is given."""

    service: str
    unary: Unary | None = None
    streaming: Streaming | None = None


class Method(NamedTuple):
    """A method of a service, and the call behind it."""

    rpc: Rpc
    service: str
    unary: Unary | None
    streaming: Streaming | None

    @property
    def name(self) -> str:
        return self.rpc.name.rpartition(".")[2]

    @property
    def path(self) -> bytes:
        """The :path of its calls."""
        return f"/{self.service}/{self.name}".encode()

    @property
    def request_class(self) -> Any:
        """The protobuf class of the requests, for Google's methods.

        None: the requests of other methods have no lists.
        """
        return request_of(self.rpc.name) if self.service.startswith("google.") else None
