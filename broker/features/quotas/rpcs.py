"""Rows of the table of calls for the quotas of projects."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.quotas import rest
from broker.features.quotas.service import QuotaService


def make_rpcs(service: QuotaService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Quotas.GetQuotas", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("serviceusage.quotas.get")),
            rest=[Rest("GET", f"{PROJECT}/quotas", "GetQuotas", partial(rest.get_quotas, service), ())],
            grpc=[],
        ),
        Row(
            name="Quotas.UpdateQuotas", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            # Quotas restrict the owner of a project, so only the installation sets them.
            needs=Needs(Need("serviceusage.quotas.update", on=On.INSTALLATION)),
            rest=[Rest("PATCH", f"{PROJECT}/quotas", "UpdateQuotas", partial(rest.update_quotas, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
