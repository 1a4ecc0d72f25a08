"""Rows of the table of calls for validating and testing message transforms."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.transforms import rest
from broker.features.transforms.service import TransformService


def make_rpcs(service: TransformService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ValidateMessageTransform", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.messageTransforms.validate")),
            rest=[
                Rest(
                    "POST", f"{PROJECT}:validateMessageTransform", "ValidateMessageTransform",
                    partial(rest.validate, service), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="TestMessageTransforms", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            # And ATTACH or CONSUME on the topic or subscription that the request names.
            needs=Needs(Need("pubsub.messageTransforms.validate")),
            rest=[
                Rest(
                    "POST", f"{PROJECT}:testMessageTransforms", "TestMessageTransforms",
                    partial(rest.test, service), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
