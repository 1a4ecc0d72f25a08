"""Rows of the calls that report on pushes and pause them."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import GET_SUBSCRIPTION, UPDATE_SUBSCRIPTION
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.resources.pause_service import PauseService
from broker.features.push_status import rest
from broker.features.push_status.service import PushService


def make_rpcs(*, pushes: PushService, pauses: PauseService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="GetPushStatus", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_SUBSCRIPTION,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}:pushStatus", "GetPushStatus",
                    partial(rest.get_push_status, pushes), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListPushFailures", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=UPDATE_SUBSCRIPTION,  # they quote the answers of the endpoint
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}:pushFailures", "ListPushFailures",
                    partial(rest.list_push_failures, pushes), (*PAGE, "messageId"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListPushAttempts", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_SUBSCRIPTION,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}:pushAttempts", "ListPushAttempts",
                    partial(rest.list_push_attempts, pushes), (*PAGE, "outcome", "since"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="TestPush", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=UPDATE_SUBSCRIPTION,
            rest=[Rest("POST", f"{SUBSCRIPTION}:testPush", "TestPush", partial(rest.test_push, pushes), ())],
            grpc=[],
        ),
        Row(
            name="PausePush", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_SUBSCRIPTION,
            rest=[Rest("POST", f"{SUBSCRIPTION}:pausePush", "PausePush", partial(rest.pause_push, pauses), ())],
            grpc=[],
        ),
        Row(
            name="ResumePush", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_SUBSCRIPTION,
            rest=[Rest("POST", f"{SUBSCRIPTION}:resumePush", "ResumePush", partial(rest.resume_push, pauses), ())],
            grpc=[],
        ),
    ]
    # fmt: on
