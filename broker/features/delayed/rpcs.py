"""Rows of the table of calls for scheduled messages."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import LOOK, LOOK_ABOVE, Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.delayed import rest
from broker.features.delayed.service import ScheduleService
from broker.model.preview import SAFEGUARDS


def make_rpcs(service: ScheduleService, views: MessageViews) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ListScheduled", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/scheduled", "ListScheduled",
                    partial(rest.list_scheduled, service, views), (*PAGE, "previewBytes"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="GetScheduled", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_ABOVE,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/scheduled/*", "GetScheduled", partial(rest.get_scheduled, service, views), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="UpdateScheduled", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
            needs=Needs(Need("pubsub.topics.update", on=On.ABOVE)),  # whoever published the message
            rest=[
                Rest(
                    "PATCH", f"{TOPIC}/scheduled/*", "UpdateScheduled",
                    partial(rest.update_scheduled, service, views), ("updateMask",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="CancelScheduled", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
            needs=Needs(Need("pubsub.topics.update", on=On.ABOVE)),  # whoever published the message
            rest=[
                Rest(
                    "DELETE", f"{TOPIC}/scheduled/*", "CancelScheduled",
                    partial(rest.cancel_scheduled, service), SAFEGUARDS,
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
