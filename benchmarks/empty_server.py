"""`python -m benchmarks.empty_server`: an empty POST handler behind the broker's HTTP server.

It runs the broker's own worker with another application in the broker's place, so that the settings of the HTTP
server are the broker's, whatever they become.
"""

import multiprocessing
import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app_config import AppConfig
from broker.cli import worker
from broker.port.first_bytes import HTTP2_DOOR, STATES
from broker.telemetry.state_changes import StateChanges

_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json; charset=UTF-8"), (b"content-length", b"2")],
}
_BODY = {"type": "http.response.body", "body": b"{}"}


async def empty(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the request's body, answer {}."""
    if scope["type"] == "lifespan":
        scope["state"][HTTP2_DOOR] = None  # nobody speaks HTTP/2 here
        scope["state"][STATES] = StateChanges()
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send(_HEAD)
    await send(_BODY)


def _empty_app(_: AppConfig, **_options: object) -> ASGIApp:
    return empty


def main() -> None:
    vars(worker)["create_app"] = _empty_app
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    host, port = listener.getsockname()
    ours, theirs = multiprocessing.Pipe()
    print(f"Ready: http://{host}:{port}", flush=True)
    worker.run_worker(AppConfig(database_url=""), listener, theirs, "warning")
    ours.close()


if __name__ == "__main__":
    main()
