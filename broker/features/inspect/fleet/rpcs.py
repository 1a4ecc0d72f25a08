"""The rows of calls: reports on the broker itself."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.inspect.fleet import rest
from broker.features.inspect.fleet.service import FleetService

# The whole installation is about everybody's projects, so a role on a project does not suffice.
_SEE_BROKER = Needs(Need("pubsub.brokers.get", on=On.INSTALLATION))


def make_fleet_rpcs(service: FleetService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Broker.ListProcesses", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_SEE_BROKER,
            rest=[Rest("GET", "broker/processes", "ListProcesses", partial(rest.list_processes, service), PAGE)],
            grpc=[],
        ),
        Row(
            name="Broker.GetDatabase", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_SEE_BROKER,
            rest=[Rest("GET", "broker/database", "GetDatabase", partial(rest.get_database, service), ())],
            grpc=[],
        ),
        Row(
            name="Broker.ListFindings", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_SEE_BROKER,
            rest=[Rest("GET", "broker/findings", "ListFindings", partial(rest.list_findings, service), ())],
            grpc=[],
        ),
        Row(
            name="Broker.ListSettings", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=_SEE_BROKER,
            rest=[Rest("GET", "broker/settings", "ListSettings", partial(rest.list_settings, service), ())],
            grpc=[],
        ),
    ]
    # fmt: on
