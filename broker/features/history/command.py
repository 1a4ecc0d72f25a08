"""`broker history`."""

from datetime import datetime, timedelta

import click

from broker.client import terminal
from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.output import Shown
from broker.client.stop import Misuse
from broker.client.words import duration_text, parse_time, seconds_of, time_text
from broker.features.history.chart import Chart


@calling(
    "history",
    "broker history pubsub_topic_retracted_messages_total topics/orders",
    "broker history pubsub_subscription_num_dead_letter_messages --since 1d",
)
@click.argument("metric", metavar="METRIC")
@click.argument("resource", metavar="[RESOURCE]", required=False)
@click.option("--since", metavar="TIME", default="1h", show_default=True, help="A time, or how long ago (6h).")
@click.option("--until", metavar="TIME", help="Before then; without it, until now.")
@click.option("--every", metavar="DURATION", help="How long a point is: 10s, 1m, 10m or a multiple of these.")
def history(
    session: Session, *, metric: str, resource: str | None, since: str, until: str | None, every: str | None
) -> Shown:
    """Draw a metric of the last two weeks, over all brokers; needs this broker.

    METRIC is a counter of topics or subscriptions by its name in /metrics, such as
    pubsub_topic_published_messages_total, or a gauge of backlogs, such as
    pubsub_subscription_num_undelivered_messages. RESOURCE is topics/NAME or subscriptions/NAME; without it, all of
    the project are added up. Counters are drawn as rates.
    """
    query = {"metric": metric, "interval": _interval(since, until)}
    if resource:
        query["resource"] = _full_name(resource, session)
    if every:
        query["alignmentPeriod"] = duration_text(every, "--every")
    found = session.api.call("GET", f"{session.project}/timeSeries", params=query)
    what = f"{metric} of {resource or session.project}"
    width = session.out.console.width if session.out.is_terminal else terminal.columns()
    lines = [line for series in found.get("timeSeries", ()) for line in _draw(series, found, what, width)]
    return Shown(data=found, lines=lines, nothing=f"{what} was 0 all the time.")


def _interval(since: str, until: str | None) -> str:
    """Returns a duration until now if `since` is one and `until` is absent, so that the broker's clock applies,
    else times.

    Raises Misuse.
    """
    if until is None:
        try:
            return f"{seconds_of(since, '--since'):.0f}s"
        except Misuse:
            pass
    now = machine_time()
    end = time_text(until, "--until", now) if until else ""
    return f"{time_text(since, '--since', now)}/{end}"


def _full_name(given: str, session: Session) -> str:
    """Returns the full name of a topic or subscription.  Raises Misuse."""
    collection, _, name = given.partition("/")
    if given.startswith("projects/") or not name or collection not in ("topics", "subscriptions"):
        if given.startswith("projects/"):
            return given
        raise Misuse(f"RESOURCE must be topics/NAME or subscriptions/NAME, not {given!r}")
    return f"{session.project}/{given}"


def _draw(series: Json, found: Json, what: str, width: int) -> list[str]:
    is_gauge = series["metricKind"] == "GAUGE"
    period = timedelta(seconds=seconds_of(found["alignmentPeriod"], "alignmentPeriod"))
    start, end = (parse_time(found["interval"][name]) for name in ("startTime", "endTime"))
    chart = Chart(
        amounts={_start(point, start, period): int(point["value"]["int64Value"]) for point in series["points"]},
        start=start,
        end=end,
        period=period,
        unit=found["unit"],
        is_gauge=is_gauge,
    )
    labels = "".join(f", {name}={value}" for name, value in series["metric"]["labels"].items())
    title = f"{what}{labels}"
    return [title, *chart.lines(width, is_ascii=not terminal.has_blocks())]


def _start(point: Json, start: datetime, period: timedelta) -> datetime:
    """Returns the start of the period of a point, which is computed from its end, as gauges have no other time."""
    end = parse_time(point["interval"]["endTime"])
    return start - -(end - start) // period * period - period


COMMANDS = history
