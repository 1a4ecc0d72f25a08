"""`broker fleet`: reports on the broker itself."""

from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.output import Shown
from broker.client.words import short_time


@calling("processes", "broker fleet processes")
def processes(session: Session) -> Shown:
    """List the broker processes that were seen in the last minutes."""
    found = session.api.all_of("broker/processes", "processes")
    rows = [
        [
            one["processId"],
            "yes" if one["running"] else "no",
            short_time(one["lastSeenTime"]),
            str(one["maxDatabaseConnections"]),
        ]
        for one in found
    ]
    columns = ("process", "running", "seen", "connections")
    return Shown(data=found, columns=columns, rows=rows, cut=("process",), whole=columns[1:])


@calling("database", "broker fleet database")
def database(session: Session) -> Shown:
    """Show the database: its version, size, schema and connections."""
    found = session.api.call("GET", "broker/database")
    return Shown(data=found, fields=found)


@calling("findings", "broker fleet findings")
def findings(session: Session) -> Shown:
    """List what the broker's own checks find, errors first; `broker doctor` makes the same checks of a database."""
    found = session.api.call("GET", "broker/findings").get("findings", [])
    rows = [
        [one["severity"].lower(), short_time(one["sinceTime"]), one["sentence"], one.get("nextStep", "")]
        for one in found
    ]
    columns = ("severity", "since", "finding", "next step")
    return Shown(data=found, columns=columns, rows=rows, whole=columns[:2], minor=("since",))


@calling("settings", "broker fleet settings")
def settings(session: Session) -> Shown:
    """List the settings of the broker that serves, and where each comes from; no passwords are shown."""
    found = session.api.call("GET", "broker/settings").get("settings", [])
    rows = [[one["name"], one["value"] or "-", one["origin"]] for one in found]
    columns = ("setting", "value", "origin")
    return Shown(data=found, columns=columns, rows=rows, cut=("value", "origin"))


COMMANDS = Group(
    "fleet",
    help="The broker itself: processes, database, findings, settings; for its operators.",
    commands=[processes, database, findings, settings],
)
