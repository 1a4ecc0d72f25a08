"""The rows of the table of calls that purge topics and subscriptions."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import CONSUME, Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIPTION, TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.backlog.seeking.seek_service import SeekService
from broker.features.purge import rest
from broker.features.purge.service import PurgeService
from broker.model.operation_verb import Verb


def make_rpcs(service: PurgeService, seeks: SeekService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="PurgeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.topics.delete")),  # only the name of the topic is left
            rest=[Rest("POST", f"{TOPIC}:purge", "PurgeTopic", partial(rest.purge_topic, service), ())],
            grpc=[],
        ),
        Row(
            name="PurgeSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.PURGE,
            needs=CONSUME,  # as a seek
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:purge", "PurgeSubscription",
                    partial(rest.purge_subscription, service, seeks), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
