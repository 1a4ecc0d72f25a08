"""Rows of the table of calls for acknowledging messages and changing their ack deadlines."""

from collections.abc import Sequence
from functools import partial

from broker.api.grpc.methods import Grpc
from broker.api.permissions import CONSUME
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIBER, SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.acking import grpc, rest
from broker.core.acking.service import AcknowledgeService


def make_rpcs(service: AcknowledgeService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Subscriber.Acknowledge", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[
                Rest("POST", f"{SUBSCRIPTION}:acknowledge", "Acknowledge", partial(rest.acknowledge, service), ()),
                Rest(
                    "POST", f"{SUBSCRIPTION}/acknowledge", "AcknowledgeByPlainPath",
                    partial(rest.acknowledge, service), (),
                ),
            ],
            grpc=[Grpc(SUBSCRIBER, partial(grpc.acknowledge, service))],
        ),
        Row(
            name="Subscriber.ModifyAckDeadline", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:modifyAckDeadline", "ModifyAckDeadline",
                    partial(rest.modify_ack_deadline, service), (),
                ),
                Rest(
                    "POST", f"{SUBSCRIPTION}/modifyAckDeadline", "ModifyAckDeadlineByPlainPath",
                    partial(rest.modify_ack_deadline, service), (),
                ),
            ],
            grpc=[Grpc(SUBSCRIBER, partial(grpc.modify_ack_deadline, service))],
        ),
        Row(
            name="Nack", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[Rest("POST", f"{SUBSCRIPTION}:nack", "Nack", partial(rest.nack, service), ())],
            grpc=[],
        ),
        Row(
            name="Reject", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[Rest("POST", f"{SUBSCRIPTION}:reject", "Reject", partial(rest.reject, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
