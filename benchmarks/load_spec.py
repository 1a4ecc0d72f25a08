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
    rate: float = 0.0  # of the paced roles: requests a second (paced_drain: messages)
    topics: int = 0  # of the spread roles: topics, each named `topic` with a dash and a number
    fan: int = 0  # subscriptions of each, named `subscription` with two dashes and two numbers
    first: int = 0  # the topics from this one on are polled, those before have waiting pulls
    after: float = 0.0  # `steady` counts from so many seconds on
    until: float = 0.0  # and to so many
    endpoint: str = ""  # a URL: of a push subscription without its number, or to POST to
    body: str = ""  # what to POST there
    numbered: bool = False  # every POST goes to a path of its own
    client: str = ""  # which Python client: a name of clients/client.py
    records: str = ""  # "BINARY" or "JSON": publish records of Avro in that encoding, not `size` random bytes
    levels: int = 0  # messages say by turns so many levels of urgency; 0: none
    identified: bool = False  # each message has a `broker-dedup-id` of its own
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
    steady: int = 0  # messages that came between two times after the start
    processor_seconds: float = 0.0  # of this process, while it ran
    refused_seconds: list[float] = field(default_factory=list)  # of the open loop, as publish_seconds
    unsent: int = 0  # of the open loop: no connection was free when they were due
    error: str = ""


Run = Callable[[], Result]  # what is left to do at the start signal
