"""Reports on the broker itself over REST, an extension."""

from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.resources import encode_resource
from broker.features.inspect.fleet.service import BrokerProcess, DatabaseReport, FleetService, KnownFinding
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp


async def list_processes(service: FleetService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query), prefix="")
    found, token = await service.list_processes(page)
    return encode_list("processes", [_process(each) for each in found], token)


async def get_database(service: FleetService, _: Call) -> bytes:
    return encode_resource(_database(await service.read_database()))


async def list_findings(service: FleetService, _: Call) -> bytes:
    return encode_list("findings", [_finding(each) for each in await service.list_findings()], "")


async def list_settings(service: FleetService, _: Call) -> bytes:
    return encode_list("settings", [each._asdict() for each in service.settings], "")


# --- JSON ---------------------------------------------------------------------------------------------------


def _process(process: BrokerProcess) -> dict[str, Any]:
    return {
        "processId": process.process_id,
        "running": process.is_running,
        "lastSeenTime": format_timestamp(process.seen_at),
        "schemaRevision": process.revision,
        "maxDatabaseConnections": process.database_connections,
    }


def _database(report: DatabaseReport) -> dict[str, Any]:
    server, fleet = report.server, report.fleet
    return {
        "serverVersion": server.version,
        "schema": report.state.schema,
        "schemaRevision": report.state.revision or "",
        "sizeBytes": str(server.database_bytes),
        "sessions": server.sessions,
        "standby": server.is_standby,
        "brokerProcesses": fleet.processes,
        "brokerConnections": fleet.connections,
        "allowedConnections": fleet.allowed,
        "settings": {name: value for name, value in sorted(server.values.items()) if name != "data_directory"},
    }


def _finding(known: KnownFinding) -> dict[str, Any]:
    finding = known.finding
    return {
        "check": finding.check,
        "severity": finding.state.upper(),
        "sentence": finding.sentence,
        "sinceTime": format_timestamp(known.since),
        **({"nextStep": finding.command} if finding.command else {}),
    }
