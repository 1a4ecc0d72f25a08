"""Rows of the table of calls for projects."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import NOTHING
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.projects import rest
from broker.features.projects.service import ProjectService


def make_rpcs(service: ProjectService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Projects.ListProjects", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # the service leaves out the projects that the caller may not see
            rest=[Rest("GET", "projects", "ListProjects", partial(rest.list_projects, service), PAGE)],
            grpc=[],
        ),
    ]
    # fmt: on
