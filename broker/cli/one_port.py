"""REST and gRPC on one port: the first bytes of a connection decide.

Clients of gRPC begin with the preface of HTTP/2 at once (PUBSUB_EMULATOR_HOST is cleartext, there is no upgrade).
Whatever is no part of it is HTTP/1.1.  From then on the connection belongs to the protocol that was chosen: neither
pays for the other.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from broker.app import GRPC_DOOR
from broker.cli.one_write import OneWriteProtocol
from broker.front.grpc.http2.frames import PREFACE
from broker.front.grpc.server import GrpcDoor


class FirstBytes(asyncio.Protocol):
    """A connection that has not said yet what it speaks."""

    def __init__(
        self,
        connections: set[Any],
        make_http1: Callable[[], asyncio.Protocol],
        make_http2: Callable[[], asyncio.Protocol],
    ) -> None:
        """It keeps itself among `connections`, which the server shuts down when it stops, until it knows."""
        self._connections = connections
        self._make_http1 = make_http1
        self._make_http2 = make_http2
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._heard:
            data = self._heard + data
        if data.startswith(PREFACE):
            self._hand_over(self._make_http2(), data)
        elif PREFACE.startswith(data):
            self._heard = data
        else:
            self._hand_over(self._make_http1(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def shutdown(self) -> None:
        self._transport.close()

    def _hand_over(self, protocol: asyncio.Protocol, data: bytes) -> None:
        self._connections.discard(self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)


def make_protocol(
    *,
    config: Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> FirstBytes:
    """For uvicorn.Config(http=…), of an application whose lifespan gives GRPC_DOOR."""
    door: GrpcDoor = app_state[GRPC_DOOR]
    return FirstBytes(
        server_state.connections,
        lambda: OneWriteProtocol(config, server_state, app_state, _loop),
        lambda: door.connection(cast(Any, server_state.connections), cast(Any, server_state.tasks)),
    )
