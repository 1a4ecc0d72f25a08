"""The metrics that have a history: the counters of topics and subscriptions, and gauges of backlogs.

Their names are those of /metrics.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.model.errors import InvalidArgument
from broker.observability.metrics.families import LAYOUTS

MAX_METRICS = 10  # of a call
_COUNTED = ("topic", "subscription")  # the kinds of the layouts


class Metric(NamedTuple):
    """A metric that has a history.  `kind` is "topic" or "subscription"; `label` is the name of its label, if it
    has one.
    """

    name: str
    kind: str
    is_gauge: bool
    unit: str
    label: str = ""

    @property
    def is_age(self) -> bool:
        """Whether the value of several subscriptions is their highest one, and not their sum."""
        return self.unit == "s"


class Column(NamedTuple):
    """A counter in the memory of a broker: a metric with one value of its label ("" if it has none)."""

    metric: Metric
    value: str
    slot: int


UNDELIVERED = Metric("pubsub_subscription_num_undelivered_messages", "subscription", True, "1")
OUTSTANDING = Metric("pubsub_subscription_num_outstanding_messages", "subscription", True, "1")
OLDEST_AGE = Metric("pubsub_subscription_oldest_unacked_message_age_seconds", "subscription", True, "s")
BACKLOG_BYTES = Metric("pubsub_subscription_backlog_bytes", "subscription", True, "By")
DEAD_LETTERS = Metric("pubsub_subscription_num_dead_letter_messages", "subscription", True, "1")
# In the order of read_lag_for_history.sql.
GAUGES = (UNDELIVERED, OUTSTANDING, OLDEST_AGE, BACKLOG_BYTES, DEAD_LETTERS)


def _columns() -> Iterator[Column]:
    for kind in _COUNTED:
        for family in LAYOUTS[kind].families:
            if family.kind == "counter":
                unit = "By" if family.name.endswith("_bytes") else "1"
                metric = Metric(f"{family.name}_total", kind, False, unit, family.label)
                for number, value in enumerate(family.values or ("",)):
                    yield Column(metric, value, family.offset + number)


COLUMNS = tuple(_columns())
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*(each.metric for each in COLUMNS), *GAUGES)}


def find_metrics(names: Sequence[str]) -> Sequence[Metric]:
    """Returns the metrics of these names, each once.

    Raises InvalidArgument for more than MAX_METRICS, and for a metric that has no history; the message lists those
    that have one.
    """
    if len(names) > MAX_METRICS:
        raise InvalidArgument(
            f"Invalid value at 'metric': {len(names)} metrics are given, and a call takes at most {MAX_METRICS}."
        )
    return [_find(name) for name in dict.fromkeys(names)]


def _find(name: str) -> Metric:
    metric = METRICS.get(name)
    if metric is None:
        problem = f"{name[:100]!r} has no history" if name else "it must name a metric"
        raise InvalidArgument(f"Invalid value at 'metric': {problem}. These have: {', '.join(METRICS)}.")
    return metric
