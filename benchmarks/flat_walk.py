"""Lists all messages of a topic to the end, page by page, while others publish on it: each message comes once."""

import json
import re
import threading
import time
from dataclasses import dataclass

from benchmarks.flat_seeks import Ground
from benchmarks.servers import Server
from benchmarks.wire import Connection, LoadFailed, build_request

_PAGE = 1_000
_PUBLISH_EVERY_SECONDS = 0.05
_LONGEST_SECONDS = 240.0
_IDS = re.compile(rb'"messageId": ?"(\d+)"')
_TOKEN = re.compile(rb'"nextPageToken": ?"([^"]+)"')


@dataclass(slots=True)
class Walk:
    """Seconds of each page; how many messages came; whether it got to the end."""

    pages: list[float]
    messages: int = 0
    is_whole: bool = False


def walk(server: Server, ground: Ground) -> Walk:
    """Walks for at most _LONGEST_SECONDS.  Raises LoadFailed if a message is left out or comes twice."""
    found, token, expected = Walk([]), "", int(ground.backlog.message_id(1))
    until = time.monotonic() + _LONGEST_SECONDS
    is_over = threading.Event()
    publisher = threading.Thread(target=_publish, args=(server, ground.backlog.topic, is_over))
    publisher.start()
    try:
        while time.monotonic() < until:
            query = f"pageSize={_PAGE}&order=oldest&previewBytes=0" + (f"&pageToken={token}" if token else "")
            seconds, answer = ground.call("GET", f"{ground.backlog.topic}/messages?{query}")
            found.pages.append(seconds)
            for id_ in map(int, _IDS.findall(answer)):
                if id_ != expected:
                    raise LoadFailed(f"the list has {id_} where {expected} follows")
                expected += 1
                found.messages += 1
            if found.messages >= ground.backlog.size:
                is_over.set()
            more = _TOKEN.search(answer)
            if more is None:
                found.is_whole = True
                return found
            token = more[1].decode()
        return found
    finally:
        is_over.set()
        publisher.join()


def _publish(server: Server, topic: str, is_over: threading.Event) -> None:
    connection = Connection(server.host, server.port)
    request = build_request(
        "POST", f"/v1/{topic}:publish", json.dumps({"messages": [{"data": "aGVsbG8="}]}).encode()
    )
    while not is_over.wait(_PUBLISH_EVERY_SECONDS):
        connection.call(request)
    connection.close()
