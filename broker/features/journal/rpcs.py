"""The row of the table of calls that follows the journal of a subscription."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import GET_SUBSCRIPTION
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.journal import rest
from broker.features.journal.service import JournalTailService


def make_rpcs(service: JournalTailService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="TailSubscription", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_SUBSCRIPTION,  # shows no message bodies
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}:tail", "TailSubscription",
                    partial(rest.tail_subscription, service), ("startTime",),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
