"""`broker audit`."""

import click

from broker.access.audit.audit_entry import method_name
from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.output import Shown
from broker.client.words import leaf, short_time, time_text

_FIELDS = {
    "method": "protoPayload.methodName",
    "resource": "protoPayload.resourceName",
    "principal": "protoPayload.authenticationInfo.principalEmail",
    "credential": "protoPayload.authenticationInfo.credentialId",
}


@calling(
    "audit",
    "broker audit --since 1h --method IAM.CreateServiceAccount",
    "broker audit --resource 'projects/demo/topics/*' --max 1",
)
@click.option("--since", metavar="TIME", help="From then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Before then.")
@click.option("--method", metavar="METHOD", help="Such as Publisher.DeleteTopic, or its full name.")
@click.option("--resource", metavar="NAME", help="The whole name; one that ends in * means all that begin so.")
@click.option("--principal", metavar="EMAIL", help="Only what this caller did.")
@click.option("--credential", metavar="ID", help="Only what was done with this key, such as key:KEY_ID.")
@click.option("--filter", "filter_text", metavar="FILTER", help="Other comparisons, as the API has them.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=20, show_default=True)
def audit(
    session: Session, *, since: str | None, until: str | None, filter_text: str | None, most: int, **equal: str
) -> Shown:
    """List who changed what in a project and what was denied, the newest first; needs this broker."""
    now = machine_time()
    if equal["method"]:
        equal["method"] = method_name(equal["method"])
    terms = [f'{_FIELDS[name]}="{text}"' for name, text in equal.items() if text]
    terms += [f'timestamp>="{time_text(since, "--since", now)}"'] if since else []
    terms += [f'timestamp<"{time_text(until, "--until", now)}"'] if until else []
    terms += [filter_text] if filter_text else []
    path = f"{session.project}/auditLogs"
    found = session.api.all_of(path, "entries", {"filter": " AND ".join(terms)}, most)
    columns = ("time", "method", "resource", "outcome", "principal")
    nothing = "There is no such entry; the broker's setting `audit` says what is written down."
    rows = [_row(one) for one in found]
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=("time", "resource", "principal"),
        cut=("method", "outcome"),
        minor=("principal", "time"),
        nothing=nothing,
    )


def _row(entry: Json) -> list[str]:
    said = entry["protoPayload"]
    code = said.get("status", {}).get("code", 0)
    times = f" ({entry['times']} times)" if entry.get("times", 1) > 1 else ""
    return [
        short_time(entry["timestamp"]),
        said["methodName"].rpartition(".")[2],
        leaf(said.get("resourceName")),
        (said.get("status", {}).get("message") or f"code {code}" if code else "done") + times,
        said.get("authenticationInfo", {}).get("principalEmail", ""),
    ]


COMMANDS = audit
