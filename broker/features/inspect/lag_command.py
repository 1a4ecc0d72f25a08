"""`broker lag`."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.client.words import age_of, leaf

COLUMNS = ("subscription", "state", "age", "backlog", "outstanding", "verdict")
MINOR = ("outstanding", "age")


@calling("lag", "broker lag")
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 1000), default=100, show_default=True)
def lag(session: Session, *, most: int) -> Shown:
    """List all subscriptions with their delivery state, the one furthest behind first; needs this broker."""
    found = session.api.call("GET", f"{session.project}/lag", params={"pageSize": most}).get("subscriptions", [])
    nothing = f"{session.project} has no subscription."
    return Shown(
        data=found, columns=COLUMNS, rows=lag_rows(found), whole=COLUMNS[1:-1], minor=MINOR, nothing=nothing
    )


def lag_rows(found: list[Json]) -> list[list[str]]:
    return [
        [
            leaf(one["subscription"]),
            one["deliveryState"],
            age_of(one.get("oldestUndeliveredMessageAge")),
            f"{'about ' if one.get('undeliveredMessagesEstimated') else ''}{one.get('undeliveredMessages', 0)}",
            str(one.get("outstandingMessages", 0)),
            " ".join([one.get("verdict", ""), *one.get("warnings", ())]),
        ]
        for one in found
    ]


COMMANDS = lag
