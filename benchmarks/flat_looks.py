"""Looking stays flat (F3): how long each of the calls that look takes with a small and with a large backlog.

The subscription that is looked at has a thousand messages out, in a hundred responses, and the rest of the backlog
waits behind them; walks stop where they say that they stop (10,000 messages), whatever lies behind.  Up to 100,000
of the messages are dead letters as well, and two of these at a time have the same cause.

The two backlogs are in two projects of one broker, and each call is made to one and the other by turns, so that
other work of the machine slows both alike.  Then each call is made a few more times, and its statements are counted
in PostgreSQL's log.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.flat_seeks import Ground
from benchmarks.statement_log import StatementLog

_TIMES = 15
_COUNTED = 5  # calls whose statements are counted
_OUT = 1_000
_LONG = timedelta(minutes=50)
_LARGEST_FIRST = "pageSize=50&orderBy=undeliveredMessages%20desc"


@dataclass(frozen=True, slots=True)
class Look:
    """A GET of the path that `path` makes, `times` times."""

    measure: str
    path: Callable[[Ground], str]
    times: int = _TIMES

    def run(self, grounds: Sequence[Ground]) -> list[list[float]]:
        """Returns the seconds of each call, for each of the grounds.  Raises LoadFailed."""
        for ground in grounds:
            prepare(ground)
        taken: list[list[float]] = [[] for _ in grounds]
        for number in range(self.times + 1):
            for ground, seconds in zip(grounds, taken, strict=True):
                took, _ = ground.call("GET", self.path(ground))
                seconds += [took] if number else []
        return taken

    def count_statements(self, ground: Ground, log: StatementLog) -> int:
        """Returns the fewest statements of a few calls: during some of them, jobs of the broker run others."""
        counts = []
        for _ in range(_COUNTED):
            path = self.path(ground)
            log.skip()
            ground.call("GET", path)
            counts.append(len(log.read()))
        return min(counts)


def prepare(ground: Ground) -> None:
    """Makes _OUT messages outstanding, unless they are."""
    name = ground.subscription("sought")
    if ground.backlog.rows_out(name) != _OUT // 10:
        ground.backlog.put_out(name, _OUT, size=10, due_in=_LONG)
        time.sleep(0.5)  # the vacuum's writes


def _messages(query: str) -> Callable[[Ground], str]:
    return lambda ground: f"{ground.backlog.topic}/messages?pageSize=100&{query}"


def _since_the_middle(ground: Ground) -> str:
    moment = ground.backlog.publish_time(ground.backlog.size // 2)
    return f"{ground.backlog.topic}/messages?pageSize=100&order=oldest&startTime={moment:%Y-%m-%dT%H:%M:%S.%fZ}"


def _message(part: float) -> Callable[[Ground], str]:
    """One of the topic's; from the first (0.0) to the last (1.0)."""
    return lambda ground: f"{ground.backlog.topic}/messages/{_id(ground, part)}"


def _id(ground: Ground, part: float) -> str:
    return ground.backlog.message_id(1 + int((ground.backlog.size - 1) * part))


def _in_project(ground: Ground) -> str:
    return f"{ground.project}/messages/{_id(ground, 0.5)}"


def _of_subscription(query: str) -> Callable[[Ground], str]:
    return lambda ground: f"{ground.subscription('sought')}/messages?pageSize=100&{query}"


def _an_hour(ground: Ground) -> str:
    metric = "pubsub_subscription_num_undelivered_messages"
    return f"{ground.project}/timeSeries?metric={metric}&resource={ground.subscription('sought')}"


def _in_groups(ground: Ground) -> str:
    return f"{ground.project}/deadLetters?pageSize=100&groupBy=fingerprint&orderBy=count%20desc"


INSPECTION_READS: Sequence[Look] = (
    Look("look: the newest 100 of a topic", _messages("order=newest")),
    Look("look: the oldest 100 of a topic", _messages("order=oldest")),
    Look("look: 100 since the middle", _since_the_middle),
    Look("look: 100 of a filter, 1 of 100 matches", _messages("filter=attributes:hundredth")),
    Look("look: a filter that nothing matches, as far as it goes", _messages("filter=attributes:nothing")),
    Look("look: 100 of a key", _messages("orderingKey=key-7")),
    Look("look: the newest 100 of a topic, 100 bytes of each", _messages("order=newest&previewBytes=100")),
    Look("look: a text that nothing contains, as far as it goes", _messages("contains=nothing-has-this")),
    Look("look: when it was published, 60 buckets", lambda ground: f"{ground.backlog.topic}:histogram?buckets=60"),
    Look("look: what became of the first message", _message(0.0)),
    Look("look: what became of the middle one", _message(0.5)),
    Look("look: what became of the last one", _message(1.0)),
    Look("look: the same, found by its project", _in_project),
    Look("look: 100 that are out", _of_subscription("state=outstanding")),
    Look("look: 100 that wait", _of_subscription("state=waiting")),
    Look("look: 100 of all that a subscription has", _of_subscription("")),
    Look("look: who reads", lambda ground: f"{ground.subscription('sought')}/consumers"),
    Look("look: the lag of all subscriptions", lambda ground: f"{ground.project}/lag"),
    Look(
        "look: a page of them, the largest backlogs first", lambda ground: f"{ground.project}/lag?{_LARGEST_FIRST}"
    ),
    Look(
        "look: 100 dead letters of a subscription", lambda g: f"{g.subscription('sought')}/deadLetters?pageSize=100"
    ),
    Look("look: 100 dead letters of a project", lambda g: f"{g.project}/deadLetters?pageSize=100"),
    Look("look: 100 causes of dead letters, the most frequent first", _in_groups),
    Look("look: the topics with their figures", lambda ground: f"{ground.project}/topics?view=STATS"),
    Look("look: the backlog of an hour", _an_hour),
)
