"""What a load process is told, and what it tells."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a load process does.  `role` is a key of ROLES; `path` is a topic's, or any path to POST to."""

    role: str
    host: str
    port: int
    topic: str = ""
    subscription: str = ""
    seconds: float = 1.0  # 0: no limit, where `count` is one
    limit_seconds: float = 0.0  # for draining: stop then even if messages keep coming; 0: `seconds`
    batch: int = 1  # messages in a request
    size: int = 100  # bytes of data in a message
    count: int = 0  # messages to publish at most; 0: as many as `seconds` allows
    connections: int = 1
    max_messages: int = 1000
    rate: float = 0.0  # publishes a second, of the paced role
    endpoint: str = ""  # a URL: of a push subscription without its number, or to POST to
    body: str = ""  # what to POST there
    numbered: bool = False  # every POST goes to a path of its own
    client: str = ""  # which Python client: a name of clients/client.py
    timed: bool = False  # note how long each publish took


@dataclass(slots=True)
class Result:
    """What a load process did.  `started` and `ended` are monotonic times; `ended` is that of the last answer."""

    messages: int = 0
    requests: int = 0
    started: float = 0.0
    ended: float = 0.0
    publish_seconds: list[float] = field(default_factory=list)  # one per lone, timed or client's publish
    pull_seconds: list[float] = field(default_factory=list)  # from sending a publish to the waiting pull's answer
    processor_seconds: float = 0.0  # of this process, while it ran
    error: str = ""


Run = Callable[[], Result]  # what is left to do at the start signal
