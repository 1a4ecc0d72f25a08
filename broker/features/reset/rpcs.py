"""The row of the table of calls that resets a project."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.reset import rest
from broker.features.reset.service import ResetService


def make_rpcs(service: ResetService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ResetProject", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(
                Need("pubsub.topics.delete"),
                Need("pubsub.subscriptions.delete"),
                Need("pubsub.snapshots.delete"),
                Need("pubsub.schemas.delete"),
            ),
            rest=[Rest("POST", f"{PROJECT}:reset", "ResetProject", partial(rest.reset_project, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
