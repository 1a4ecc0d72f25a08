"""`broker doctor`."""

import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from broker.cli.client.api import Json, NotKnown, NotReached, Refused
from broker.cli.client.calling import Session, calling
from broker.cli.client.clock import machine_time
from broker.cli.client.exit_codes import DONE, REFUSED
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, parse_time
from broker.cli.command_line import Group
from broker.cli.stop import Stop

_OWN = Group("doctor")
_SLOW_SECONDS = 1.0
_SKEW_SECONDS = 30.0
_LOCAL = {"127.0.0.1", "localhost", "::1"}
_PERMISSIONS = (
    "pubsub.topics.list",
    "pubsub.topics.create",
    "pubsub.subscriptions.list",
    "pubsub.subscriptions.create",
)
_WHO_MAY = {
    "UNAUTHENTICATED": "give --credentials, or `broker auth keys create`",
    "PERMISSION_DENIED": "`broker auth policy add` gives roles",
}


class Finding(NamedTuple):
    """`state`: ok, look (somebody should), mend; `mend` says how."""

    check: str
    state: str
    finding: str
    mend: str = ""


@calling(_OWN, "doctor", "broker doctor")
@click.option("--database-url", metavar="URL", envvar="DATABASE_URL", help="Look at the broker's PostgreSQL too.")
@click.option("--replica-database-url", metavar="URL", help="And at the standby that calls which look read.")
@click.option("--hot-database-url", metavar="URL", help="And at the nodes that hot statements go to.")
def doctor(
    session: Session, *, database_url: str | None, replica_database_url: str | None, hot_database_url: str | None
) -> int:
    """Look whether all is well: the server, its version and clock, permissions, subscriptions, the database.

    The exit code is 1 if there is something to mend.
    """
    found = list(_findings(session))
    if database_url:
        from broker.cli.database_doctor import look_at_database, look_at_hot_nodes, look_at_replica_of

        found += [Finding(*one) for one in look_at_database(database_url)]
        if replica_database_url:
            found += [Finding(*one) for one in look_at_replica_of(database_url, replica_database_url)]
        if hot_database_url:
            found += [Finding(*one) for one in look_at_hot_nodes(database_url, hot_database_url)]
    elif replica_database_url or hot_database_url:
        which = "--replica-database-url" if replica_database_url else "--hot-database-url"
        raise click.UsageError(f"{which} needs --database-url.")
    rows = [list(one) for one in found]
    columns = ("check", "state", "finding", "mend")
    session.out.show(Shown(data=[one._asdict() for one in found], columns=columns, rows=rows, whole=columns[:2]))
    return REFUSED if any(one.state == "mend" for one in found) else DONE


COMMANDS = doctor


def _findings(session: Session) -> Iterator[Finding]:
    began = time.monotonic()
    try:
        health = session.api.get("/healthz")
    except NotReached as error:
        yield Finding("server", "mend", str(error).partition(";")[0], "start it with `broker serve`, or give --url")
        return
    took = time.monotonic() - began
    is_broker = health.status_code == 200 and b'"status"' in health.content
    yield _server(session, is_broker=is_broker, took=took)
    yield from _transport(session)
    if is_broker:
        yield _readiness(session)
    if session.short_project:
        yield from _project(session, is_broker=is_broker)
    else:
        yield Finding("project", "look", "none is given", "give --project, for a look at its subscriptions")


def _server(session: Session, *, is_broker: bool, took: float) -> Finding:
    where = f"{session.api.url} answers in {took * 1000:.0f} ms"
    if not is_broker:
        return Finding("server", "look", f"{where}; it is no broker of ours", "commands that need this broker fail")
    if took > _SLOW_SECONDS:
        return Finding("server", "look", where, "look at its log, and at the way there")
    return Finding("server", "ok", f"{where}; this program is {version('pubsub-broker')}")


def _transport(session: Session) -> Iterator[Finding]:
    url = urlsplit(session.api.url)
    if url.scheme == "http" and url.hostname not in _LOCAL:
        shown = ", and credentials go over it" if session.api.credentials else ""
        state = "mend" if shown else "look"
        yield Finding("transport", state, f"no TLS{shown}", "--tls-certificate of `broker serve`, or a proxy")


def _clock(lags: list[Json]) -> Iterator[Finding]:
    """By an age and the time that it counts from: answers have no other time of now."""
    for one in lags:
        if "oldestUndeliveredPublishTime" in one:
            age = timedelta(seconds=float(one["oldestUndeliveredMessageAge"].removesuffix("s")))
            skew = (parse_time(one["oldestUndeliveredPublishTime"]) + age - machine_time()).total_seconds()
            if abs(skew) > _SKEW_SECONDS:
                mend = (
                    "set this machine's clock, or the database's: tokens that are signed here begin and end by it"
                )
                yield Finding("clock", "mend", f"the server's is {skew:+.0f} s beside this machine's", mend)
            else:
                yield Finding("clock", "ok", "as the server's")
            return


def _readiness(session: Session) -> Finding:
    answer = session.api.get("/readyz")
    if answer.status_code == 200:
        return Finding("ready", "ok", "yes: the database answers")
    reason = answer.json().get("reason", "") if answer.content[:1] == b"{" else ""
    return Finding("ready", "mend", f"no: {reason}", "docs/runbooks.md has what to do when the database is away")


def _project(session: Session, *, is_broker: bool) -> Iterator[Finding]:
    yield _permissions(session)
    try:
        found = session.api.all_of(f"{session.project}/subscriptions", "subscriptions")
        topics = session.api.all_of(f"{session.project}/topics", "topics")
        yield Finding("project", "ok", f"{session.short_project}: {len(topics)} topics, {len(found)} subscriptions")
        yield from _orphans(found)
        if is_broker:
            lags = session.api.call("GET", f"{session.project}/lag", params={"pageSize": 1000})
            yield from _lagging(lags.get("subscriptions", []))
            yield from _warned(lags.get("subscriptions", []))
            yield from _clock(lags.get("subscriptions", []))
    except Refused as error:
        yield Finding("project", "mend", error.reason, _WHO_MAY.get(error.status, "what it says"))
    except Stop as error:
        yield Finding("project", "mend", str(error), "`broker doctor` again, once it answers")


def _permissions(session: Session) -> Finding:
    body = {"permissions": _PERMISSIONS}
    try:
        held = session.api.call("POST", f"{session.project}:testIamPermissions", body).get("permissions", [])
    except (NotKnown, Refused) as error:
        if isinstance(error, Refused) and error.status == "UNAUTHENTICATED":
            return Finding("permissions", "mend", error.reason, _WHO_MAY["UNAUTHENTICATED"])
        return Finding("permissions", "ok", "the server knows none: whoever reaches it may do anything")
    missing = [name for name in _PERMISSIONS if name not in held]
    if missing:
        return Finding(
            "permissions", "look", f"without {', '.join(missing)}", "`broker auth policy add` gives roles"
        )
    return Finding("permissions", "ok", "topics and subscriptions may be listed and made")


def _orphans(subscriptions: list[Json]) -> Iterator[Finding]:
    gone = [leaf(one["name"]) for one in subscriptions if one.get("topic") == "_deleted-topic_"]
    if gone:
        names = ", ".join(gone[:5]) + (", …" if len(gone) > 5 else "")
        yield Finding("topics", "look", f"deleted, of {names}", "`broker sub delete`, once they are read")


def _warned(lags: list[Json]) -> Iterator[Finding]:
    """Those whose dead-letter topic has no subscription."""
    warned = [one for one in lags if one.get("warnings")]
    for one in warned[:5]:
        name = leaf(one["subscription"])
        mend = f"`broker sub create` one for that topic; `broker dlq summary {name}` counts them"
        yield Finding(name, "look", " ".join(one["warnings"]), mend)
    if len(warned) > 5:
        yield Finding("dead letters", "look", f"{len(warned) - 5} more have warnings", "`broker lag` has them all")


def _lagging(lags: list[Json]) -> Iterator[Finding]:
    held = [one for one in lags if one.get("heldBy") not in (None, "NOTHING")]
    for one in held[:5]:
        yield Finding(leaf(one["subscription"]), "look", one["heldBy"], one.get("verdict", ""))
    if len(held) > 5:
        yield Finding("lag", "look", f"{len(held) - 5} more are held", "`broker lag` has them all")
    if not held:
        yield Finding("lag", "ok", "nothing holds a subscription")
