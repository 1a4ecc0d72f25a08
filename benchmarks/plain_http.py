"""`python -m benchmarks.plain_http serve …`: the broker with HTTP/1.1 alone on its port, as before gRPC came there.

Its processes run the broker's own worker, but for the protocol that a new connection gets.
"""

import asyncio
import sys
from typing import Any

from broker.cli.main import main
from broker.cli.server import children, worker
from broker.net.first_bytes import MakeProtocol


class _PlainHttp(MakeProtocol):
    def __call__(self, *, cleartext: bool = False, **given: Any) -> asyncio.Protocol:
        return self.http1(**given)


def _run_worker(*given: Any) -> None:
    """In the worker, which has this module as its main one, and the parent's `_run_worker` as it is."""
    vars(worker)["MakeProtocol"] = _PlainHttp
    vars(children)["_run_worker"](*given)


if __name__ == "__main__":
    vars(children)["_run_worker"] = _run_worker
    sys.exit(main())
