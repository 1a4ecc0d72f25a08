"""`python -m benchmarks.plain_http serve …`: the broker with HTTP/1.1 alone on its port, as before gRPC came there.

Its processes run the broker's own worker, but for the protocol that a new connection gets.
"""

import socket
import sys
from multiprocessing.connection import Connection

from broker.app_config import AppConfig
from broker.cli import children, worker
from broker.cli.main import main
from broker.port.http1.connection import Http1Protocol


def _run_worker(config: AppConfig, listener: socket.socket, pipe: Connection, log_level: str) -> None:
    """In the worker, which has this module as its main one."""
    vars(worker)["MakeProtocol"] = lambda most_connections: Http1Protocol
    worker.run_worker(config, listener, pipe, log_level)


if __name__ == "__main__":
    vars(children)["_run_worker"] = _run_worker
    sys.exit(main())
