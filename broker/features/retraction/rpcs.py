"""The rows of the table of calls that retract and replace messages."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import UPDATE_TOPIC, Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.retraction import rest
from broker.features.retraction.service import RetractionService


def make_rpcs(service: RetractionService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="RetractMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
            needs=UPDATE_TOPIC,  # as CancelScheduled
            rest=[Rest("POST", f"{TOPIC}:retract", "RetractMessages", partial(rest.retract, service), ())],
            grpc=[],
        ),
        Row(
            name="ReplaceMessage", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
            needs=Needs(Need("pubsub.topics.update"), Need("pubsub.topics.publish")),
            rest=[Rest("POST", f"{TOPIC}:replace", "ReplaceMessage", partial(rest.replace, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
