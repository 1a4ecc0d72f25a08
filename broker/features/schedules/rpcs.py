"""Rows of the table of calls for schedules."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, SCHEDULE, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.schedules import rest
from broker.features.schedules.service import SchedulesService
from broker.model.preview import SAFEGUARDS

_GET = Needs(Need("pubsub.schedules.get", on=On.PROJECT))
_UPDATE = Needs(Need("pubsub.schedules.update", on=On.PROJECT))


def make_rpcs(service: SchedulesService, views: MessageViews) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="PutSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            # A schedule has no policy of its own; and PUBLISH on the topic.
            needs=Needs(Need("pubsub.schedules.create", on=On.PROJECT)),
            rest=[Rest("PUT", SCHEDULE, "PutSchedule", partial(rest.put_schedule, service, views), ())],
            grpc=[],
        ),
        Row(
            name="GetSchedule", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_GET,
            rest=[Rest("GET", SCHEDULE, "GetSchedule", partial(rest.get_schedule, service, views), ())],
            grpc=[],
        ),
        Row(
            name="ListSchedules", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.schedules.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/schedules", "ListSchedules",
                    partial(rest.list_schedules, service, views), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="DeleteSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schedules.delete", on=On.PROJECT)),
            rest=[
                Rest(
                    "DELETE", SCHEDULE, "DeleteSchedule", partial(rest.delete_schedule, service), SAFEGUARDS,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="PauseSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=_UPDATE,
            rest=[
                Rest(
                    "POST", f"{SCHEDULE}:pause", "PauseSchedule",
                    partial(rest.pause_schedule, service, views), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ResumeSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=_UPDATE,
            rest=[
                Rest(
                    "POST", f"{SCHEDULE}:resume", "ResumeSchedule",
                    partial(rest.resume_schedule, service, views), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="RunSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schedules.run", on=On.PROJECT)),
            rest=[Rest("POST", f"{SCHEDULE}:run", "RunSchedule", partial(rest.run_schedule, service), ())],
            grpc=[],
        ),
        Row(
            name="ListNextTicks", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_GET,
            rest=[
                Rest(
                    "GET", f"{SCHEDULE}:next", "ListNextTicks",
                    partial(rest.list_next_ticks, service), ("pageSize",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListScheduleTicks", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_GET,
            rest=[
                Rest(
                    "GET", f"{SCHEDULE}/ticks", "ListScheduleTicks",
                    partial(rest.list_schedule_ticks, service), ("pageSize",),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
