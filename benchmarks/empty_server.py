"""`python -m benchmarks.empty_server`: an empty POST handler behind the broker's HTTP server.

It runs the broker's own worker with another application in the broker's place, so that the settings of the HTTP
server are the broker's, whatever they become.
"""

import multiprocessing
import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app.config import AppConfig
from broker.cli.server import worker
from broker.cli.server.ports import Ports
from broker.net.first_bytes import HTTP1_API, HTTP2_API, STATES, WEB_PAGES
from broker.net.http1.exchange import Exchange
from broker.net.http1.web_pages import WebPages
from broker.observability.metrics.counters import Counters
from broker.observability.state_changes import StateChanges


class _Empty:
    """Reads the request's body, answers {}."""

    def has(self, path: bytes) -> bool:
        return True

    def failed(self, exchange: Exchange, error: Exception) -> None:
        raise error

    async def serve(self, exchange: Exchange) -> None:
        while (await exchange.read())[1]:
            pass
        exchange.respond(200, b"content-type: application/json; charset=UTF-8\r\n", b"{}")


async def empty(scope: Scope, receive: Receive, send: Send) -> None:
    """A lifespan that gives the door above."""
    states = StateChanges()
    apis = {HTTP1_API: _Empty(), HTTP2_API: None}  # nobody speaks HTTP/2 here
    scope["state"] |= {**apis, STATES: states, WEB_PAGES: WebPages(states=states)}
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def _empty_app(_: AppConfig, **_options: object) -> ASGIApp:
    return empty


def main() -> None:
    vars(worker)["create_app"] = _empty_app
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    host, port = listener.getsockname()
    ours, theirs = multiprocessing.Pipe()
    print(f"Ready: http://{host}:{port}", flush=True)
    worker.run_worker(AppConfig(database_url=""), Ports(listener), theirs, ("warning", "text"), Counters())
    ours.close()


if __name__ == "__main__":
    main()
