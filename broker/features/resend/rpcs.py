"""Rows of the table of calls for resending messages."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import CONSUME
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.resend import rest
from broker.features.resend.service import ResendService


def make_rpcs(service: ResendService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ResendMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=CONSUME,  # as a seek
            rest=[Rest("POST", f"{SUBSCRIPTION}:resend", "ResendMessages", partial(rest.resend, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
