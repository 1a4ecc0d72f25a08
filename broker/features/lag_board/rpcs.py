"""The row of the table of calls that lists lags."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import LIST_SUBSCRIPTIONS
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.lag_board import rest
from broker.features.lag_board.service import LagService


def make_rpcs(service: LagService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ListLag", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LIST_SUBSCRIPTIONS,
            rest=[
                Rest(
                    "GET", f"{PROJECT}/lag", "ListLag", partial(rest.list_lag, service),
                    (*PAGE, "filter", "fresh", "orderBy"),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
