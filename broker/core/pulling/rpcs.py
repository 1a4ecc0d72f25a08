"""Rows of the table of calls for pulling messages, by single calls and by streams."""

from collections.abc import Sequence
from functools import partial

from broker.api.grpc.methods import Grpc
from broker.api.permissions import CONSUME
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIBER, SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.acking.service import AcknowledgeService
from broker.core.pulling import pull_grpc, pull_rest
from broker.core.pulling.pull_service import PullService
from broker.core.pulling.stream_grpc import streaming_pull
from broker.core.pulling.stream_service import StreamingPullService


def make_rpcs(
    *, pulls: PullService, streams: StreamingPullService, acknowledge: AcknowledgeService
) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Subscriber.Pull", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:pull", "Pull",
                    partial(pull_rest.pull, pulls), ("maxMessages", "returnImmediately"),
                ),
                Rest(
                    "POST", f"{SUBSCRIPTION}/pull", "PullByPlainPath",
                    partial(pull_rest.pull, pulls), ("maxMessages", "returnImmediately"),
                ),
            ],
            grpc=[Grpc(SUBSCRIBER, partial(pull_grpc.pull, pulls))],
        ),
        Row(
            name="Subscriber.StreamingPull", kind=Kind.WAITING, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
            needs=CONSUME,
            rest=[],
            grpc=[Grpc(SUBSCRIBER, streaming=partial(streaming_pull, streams, acknowledge))],
        ),
    ]
    # fmt: on
