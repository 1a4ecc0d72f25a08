"""The row of the call that reads history."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.history import rest
from broker.features.history.service import HistoryService


def make_rpcs(service: HistoryService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Monitoring.ListTimeSeries", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("monitoring.timeSeries.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/timeSeries", "ListTimeSeries", partial(rest.list_time_series, service),
                    ("metric", "resource", "label", "interval", "alignmentPeriod"),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
