"""Rows of the table of calls for searching a project."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import NOTHING
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.search import rest
from broker.features.search.service import SearchService


def make_rpcs(service: SearchService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="SearchProject", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # the handler searches what the caller may list
            rest=[
                Rest(
                    "GET", f"{PROJECT}:search", "SearchProject",
                    partial(rest.search_project, service), ("q", "kinds", *PAGE),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
