"""Lists all messages of a topic to the end, page by page, while others publish on it: each message comes once."""

import re
import time
from dataclasses import dataclass

from benchmarks.flat_seeks import Ground
from benchmarks.list_walk import pages, publishing
from benchmarks.servers import Server
from benchmarks.wire import LoadFailed

_PAGE = 1_000
_LONGEST_SECONDS = 600.0
_IDS = re.compile(rb'"messageId": ?"(\d+)"')


@dataclass(slots=True)
class Walk:
    """Seconds of each page; how many messages came; whether it got to the end."""

    pages: list[float]
    messages: int = 0
    is_whole: bool = False


def walk(server: Server, ground: Ground) -> Walk:
    """Walks for at most _LONGEST_SECONDS.  Raises LoadFailed if a message is left out or comes twice."""
    found, expected = Walk([]), int(ground.backlog.message_id(1))
    until = time.monotonic() + _LONGEST_SECONDS
    path = f"{ground.backlog.topic}/messages?pageSize={_PAGE}&order=oldest&previewBytes=0"
    with publishing(server, ground.backlog.topic) as is_over:
        for seconds, answer in pages(lambda asked: ground.call("GET", asked), path):
            found.pages.append(seconds)
            for id_ in map(int, _IDS.findall(answer)):
                if id_ != expected:
                    raise LoadFailed(f"the list has {id_} where {expected} follows")
                expected += 1
                found.messages += 1
            if found.messages >= ground.backlog.size:
                is_over.set()
            if time.monotonic() > until:
                return found
    found.is_whole = True
    return found
