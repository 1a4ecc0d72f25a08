"""`broker lag`."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.client.words import age_of, leaf

COLUMNS = ("subscription", "state", "age", "backlog", "outstanding", "in/s", "out/s", "dead", "verdict")
MINOR = ("in/s", "out/s", "dead", "outstanding", "age")


@calling(
    "lag",
    "broker lag",
    "broker lag --order-by 'undeliveredMessages desc' --filter 'heldBy!=PAUSED'",
    "broker lag --sampled --max 1000",
)
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=100, show_default=True)
@click.option("--order-by", metavar="FIELD [desc]", help="Such as deadLetters desc; the oldest message first.")
@click.option(
    "--filter", "filter_text", metavar="FILTER", help='Such as heldBy=NO_CONSUMERS AND label="team=shop".'
)
@click.option("--sampled", is_flag=True, help="Show the last sample; else the figures are computed now.")
def lag(session: Session, *, most: int, order_by: str | None, filter_text: str | None, sampled: bool) -> Shown:
    """List subscriptions with their delivery state, the one furthest behind first; needs this broker."""
    wanted = {"fresh": None if sampled else "true", "orderBy": order_by, "filter": filter_text}
    found = session.api.all_of(f"{session.project}/lag", "subscriptions", wanted, most=most)
    nothing = f"{session.project} has no {'such ' if filter_text else ''}subscription."
    return Shown(
        data=found, columns=COLUMNS, rows=lag_rows(found), whole=COLUMNS[1:-1], minor=MINOR, nothing=nothing
    )


def lag_rows(found: list[Json]) -> list[list[str]]:
    return [
        [
            leaf(one["subscription"]),
            one["deliveryState"],
            age_of(one.get("oldestUndeliveredMessageAge")),
            _backlog(one),
            str(one.get("outstandingMessages", 0)),
            _rate(one.get("incomingMessagesPerSecond")),
            _rate(one.get("outgoingMessagesPerSecond")),
            str(one.get("deadLetters") or ""),
            " ".join([one.get("verdict", ""), *one.get("warnings", ())]),
        ]
        for one in found
    ]


def _backlog(one: Json) -> str:
    return f"{'about ' if one.get('undeliveredMessagesEstimated') else ''}{one.get('undeliveredMessages', 0)}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}" if 0 < rate < 10 else f"{rate:.0f}"


COMMANDS = lag
