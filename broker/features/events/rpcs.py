"""Rows of the table of calls for events: the settings of a project, which name their topic, and the last ones."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import LIST_SUBSCRIPTIONS, Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.events import rest
from broker.features.events.service import EventService


def make_rpcs(service: EventService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Settings.GetSettings", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.topics.list")),
            rest=[Rest("GET", f"{PROJECT}/settings", "GetSettings", partial(rest.get_settings, service), ())],
            grpc=[],
        ),
        Row(
            name="Settings.UpdateSettings", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(
            # Whoever sets the event topic has events published there.
                Need("pubsub.topics.update", on=On.PROJECT),
                Need("pubsub.topics.publish", on=On.PROJECT),
            ),
            rest=[
                Rest("PATCH", f"{PROJECT}/settings", "UpdateSettings", partial(rest.update_settings, service), ()),
            ],
            grpc=[],
        ),
        Row(
            name="ListEvents", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LIST_SUBSCRIPTIONS,
            rest=[
                Rest(
                    "GET", f"{PROJECT}/events", "ListEvents", partial(rest.list_events, service),
                    (*PAGE, "filter", "orderBy"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="CreateMark", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need("pubsub.topics.update", on=On.PROJECT)),
            rest=[Rest("POST", f"{PROJECT}/marks", "CreateMark", partial(rest.create_mark, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
