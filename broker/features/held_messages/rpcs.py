"""Rows of the table of calls for releasing and dead-lettering single messages."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import CONSUME
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.held_messages import rest
from broker.features.held_messages.service import HeldMessageService


def make_rpcs(service: HeldMessageService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ReleaseMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=CONSUME,
            rest=[Rest("POST", f"{SUBSCRIPTION}:release", "ReleaseMessages", partial(rest.release, service), ())],
            grpc=[],
        ),
        Row(
            name="DeadLetterMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=CONSUME,
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:deadLetter", "DeadLetterMessages",
                    partial(rest.dead_letter, service), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
