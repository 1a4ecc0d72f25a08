"""Rates that quotas limit, and what a project has published in the last hour.

The history has that in periods of ten seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from broker.client.words import size
from broker.console import formats
from broker.console.charts import value_of
from broker.console.page import Block
from broker.model.durations import parse_duration

# The metrics of the rates that are known for a project, by quota.
METRICS: Mapping[str, str] = {
    "publishRequests": "pubsub_topic_publish_requests_total",
    "publishMessages": "pubsub_topic_published_messages_total",
    "publishBytes": "pubsub_topic_published_bytes_total",
}
EXHAUSTED = "RESOURCE_EXHAUSTED"  # the code of publishes that a quota refuses
LAST_HOUR: Mapping[str, str] = {
    "metric": ",".join(METRICS.values()),
    "interval": "3600s",
    "alignmentPeriod": "10s",
}


class Excess(NamedTuple):
    """The part of a rate that was above a limit: `amount` of `all_`, in so many `periods`."""

    amount: float
    all_: float
    periods: int


class Rate(NamedTuple):
    """The amounts of a rate by the ends of periods of `seconds`."""

    seconds: float
    amounts: Mapping[str, float]

    @property
    def highest(self) -> float:
        """The amount a second of the period with most."""
        return max(self.amounts.values(), default=0.0) / self.seconds

    @property
    def highest_at(self) -> str:
        """The end of that period; "": nothing was counted."""
        return max(self.amounts, key=lambda end: self.amounts[end], default="")

    def excess(self, limit: float) -> Excess:
        """Return what was above a limit a second."""
        above = [amount - limit * self.seconds for amount in self.amounts.values()]
        above = [amount for amount in above if amount > 0]
        return Excess(sum(above), sum(self.amounts.values()), len(above))


def figure(value: float, unit: str) -> str:
    """Return an amount without the unit of its quota; bytes as a size."""
    return size(value) if unit.startswith("bytes") else formats.rate(value)


def amount(value: float, unit: str) -> str:
    """Return an amount with the unit of its quota."""
    after = unit.removeprefix("bytes") if unit.startswith("bytes") else f" {unit}"
    return figure(value, unit) + after


def rates_of(history: Block) -> Mapping[str, Rate]:
    """Return the rates of the last hour by quota; none if their history was refused.

    Refused requests are in none of them.
    """
    if history.error is not None or "alignmentPeriod" not in history.answer:
        return {}
    seconds = parse_duration(history.answer["alignmentPeriod"], "alignmentPeriod").total_seconds()
    return {quota: Rate(seconds, _amounts(history.of_metric(metric))) for quota, metric in METRICS.items()}


def refused_requests(history: Block) -> int:
    """Return how many publish requests of the last hour were refused because a quota was used up."""
    return sum(
        int(value_of(point))
        for one in history.of_metric(METRICS["publishRequests"]).list("timeSeries")
        if one["metric"]["labels"].get("code") == EXHAUSTED
        for point in one["points"]
    )


def _amounts(series: Block) -> Mapping[str, float]:
    amounts: dict[str, float] = {}
    for one in series.list("timeSeries"):
        if one["metric"]["labels"].get("code", "OK") == "OK":
            for point in one["points"]:
                end = point["interval"]["endTime"]
                amounts[end] = amounts.get(end, 0.0) + value_of(point)
    return amounts
