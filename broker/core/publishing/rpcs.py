"""Rows of the table of calls for publishing messages."""

from collections.abc import Sequence
from functools import partial

from broker.api.grpc.methods import Grpc
from broker.api.permissions import PUBLISH
from broker.api.rest.routes import Rest
from broker.api.row import PUBLISHER, TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.publishing import grpc, rest
from broker.core.publishing.service import PublishService


def make_rpcs(service: PublishService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Publisher.Publish", kind=Kind.HOT, size=Size.PUBLISH, audit=Audit.USE, starts=None,
            needs=PUBLISH,
            rest=[
                Rest("POST", f"{TOPIC}:publish", "Publish", partial(rest.publish, service), ()),
                Rest("POST", f"{TOPIC}/publish", "PublishByPlainPath", partial(rest.publish, service), ()),
            ],
            grpc=[Grpc(PUBLISHER, partial(grpc.publish, service))],
        ),
    ]
    # fmt: on
