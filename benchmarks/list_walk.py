"""Pages of a list to its end, and a publisher that goes on meanwhile."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.servers import Server
from benchmarks.wire import Connection, build_request

_PUBLISH_EVERY_SECONDS = 0.05
_TOKEN = re.compile(rb'"nextPageToken": ?"([^"]+)"')

Get = Callable[[str], tuple[float, bytes]]  # a path; seconds that the call took, and its answer


def pages(get: Get, path: str) -> Iterator[tuple[float, bytes]]:
    """Yields the seconds and the answer of each page of a list.  `path` has a query.  Raises LoadFailed."""
    token = ""
    while True:
        seconds, answer = get(f"{path}{token}")
        yield seconds, answer
        more = _TOKEN.search(answer)
        if more is None:
            return
        token = f"&pageToken={more[1].decode()}"


@contextmanager
def publishing(server: Server, topic: str) -> Iterator[threading.Event]:
    """Publishes one message after the other within the block, until the event that it yields is set."""
    is_over = threading.Event()
    publisher = threading.Thread(target=_publish, args=(server, topic, is_over))
    publisher.start()
    try:
        yield is_over
    finally:
        is_over.set()
        publisher.join()


def _publish(server: Server, topic: str, is_over: threading.Event) -> None:
    connection = Connection(server.host, server.port)
    body = json.dumps({"messages": [{"data": "aGVsbG8="}]}).encode()
    request = build_request("POST", f"/v1/{topic}:publish", body)
    while not is_over.wait(_PUBLISH_EVERY_SECONDS):
        connection.call(request)
    connection.close()
