"""`broker doctor`."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import click

from broker.client.api import Json, NotKnown, NotReached, Refused
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.exit_codes import DONE, REFUSED
from broker.client.output import Shown
from broker.client.stop import Stop
from broker.client.words import leaf, parse_time
from broker.core.lag.lag import HEALTHY
from broker.features.inspect.fleet.finding import ERROR, OK, UNKNOWN, WARNING, Finding, not_checked
from broker.model.certificate_validity import ValidityState, span_in_words
from broker.version import version

_SLOW_SECONDS = 1.0
_SKEW_SECONDS = 30.0
_MOST_LAGS = 200  # subscriptions, those that are furthest behind
_MOST_SHOWN = 5  # subscriptions that are named
_LOCAL = {"127.0.0.1", "localhost", "::1"}
_PERMISSIONS = (
    "pubsub.topics.list",
    "pubsub.topics.create",
    "pubsub.subscriptions.list",
    "pubsub.subscriptions.create",
)
_NEXT_STEPS = {  # for each state of delivery that is not healthy; {} is the subscription's name
    "DETACHED": "broker sub delete {}",
    "EXPORT": "broker sub delete {}",
    "PAUSED": "broker sub resume {}",
    "ENDPOINT_FAILING": "broker push failures {}",
    "WAITING_FOR_SLOTS": "broker push status {}",
    "NO_CONSUMERS": "start a consumer, and see what waits: broker peek {}",
    "BLOCKED_KEY": "broker message show {message}",
    "RETRYING": "broker peek {} --state retrying",
    "SLOW_ENDPOINT": "broker push status {}",
    "SLOW_CONSUMERS": "add consumers, or: broker peek {} --state outstanding",
}
_LAG = "broker lag"
_AGAIN = "broker doctor"
_WHO_MAY = {
    "UNAUTHENTICATED": "broker auth keys create ACCOUNT, then --credentials FILE",
    "PERMISSION_DENIED": "broker auth policy add RESOURCE --role ROLE --member MEMBER",
}


@calling("doctor", "broker doctor")
@click.option("--database-url", metavar="URL", help="Check the broker's PostgreSQL too.")
@click.option("--database-password-file", metavar="FILE", help="The password of that database.")
@click.option("--database-schema", metavar="NAME", help="The schema of the broker's tables.")
@click.option("--replica-database-url", metavar="URL", help="Check the standby that read-only calls use.")
@click.option("--replica-max-lag-seconds", metavar="SECONDS", help="How far the standby may be behind.")
@click.option("--hot-database-url", metavar="URL", help="Check the nodes that hot statements go to.")
def doctor(session: Session, **databases: str | None) -> int:
    """Check the server, its version and clock, permissions, subscriptions, and the database.

    Options of the database that are not given come from the environment variables that `broker serve` reads. The
    exit code is 1 if a check found an error or could not be made.
    """
    from broker.cli.maintenance.database_doctor import find_database_checks

    checks = find_database_checks(databases)
    found = [*_findings(session), *(one for check in checks for one in check())]
    rows = [list(one) for one in found]
    columns = Finding._fields
    session.out.show(Shown(data=[one._asdict() for one in found], columns=columns, rows=rows, whole=columns[:2]))
    return REFUSED if any(one.state in (ERROR, UNKNOWN) for one in found) else DONE


COMMANDS = doctor


def _findings(session: Session) -> Iterator[Finding]:
    server = _Server(session)
    yield from server.check()
    if not server.answers:
        return
    yield from _transport(session)
    yield from _checked(lambda: _certificate(session), "certificate")
    if server.may_be_ours:
        yield from _checked(lambda: _readiness(session), "ready", "storage")
    if not session.short_project:
        yield Finding(
            "project", WARNING, "none is given", "its subscriptions were not checked", "broker doctor --project P"
        )
        return
    yield from _checked(lambda: _permissions(session, server), "permissions")
    yield from _checked(lambda: _project(session), "project", "topics")
    if server.may_be_ours:
        yield from _checked(lambda: _schedules(session), "schedules")
        yield from _checked(lambda: _lags(session), "lag", "clock")


def _checked(check: Callable[[], Iterator[Finding]], *decided: str) -> Iterator[Finding]:
    """The findings of a check, which decides what these names say.

    A check never takes an error for a finding: what it had not decided by then could not be checked.
    """
    left = set(decided)
    try:
        for found in check():
            left.discard(found.check)
            yield found
    except (Refused, NotKnown, NotReached) as error:
        why, command = _why(error), _WHO_MAY.get(getattr(error, "status", ""), _AGAIN)
    except (LookupError, TypeError, ValueError) as error:  # another server than it seemed, or a proxy, has answered
        why, command = f"the answer is not one of this API ({type(error).__name__})", _AGAIN
    else:
        return
    yield from (not_checked(name, why, command) for name in decided if name in left)


def _why(error: Stop) -> str:
    if isinstance(error, Refused):
        return f"{error.status}: {error.reason}" if error.reason else error.status
    if isinstance(error, NotKnown):
        return "the server does not have the call that this check makes"
    return error.seen if isinstance(error, NotReached) else str(error).partition(";")[0]


class _Server:
    """`may_be_ours` is false only where the server has shown that it is another one."""

    def __init__(self, session: Session) -> None:
        self._api = session.api
        self.answers = False
        self.may_be_ours = True

    def check(self) -> Iterator[Finding]:
        began = time.monotonic()
        try:
            health = self._api.get("/healthz")
        except NotReached as error:
            yield Finding("server", ERROR, "cannot be reached", error.seen, error.remedy)
            return
        took = time.monotonic() - began
        self.answers = True
        where = f"{self._api.url} answers in {took * 1000:.0f} ms"
        if health.status_code not in (200, 404):
            why = f"{self._api.url}/healthz answers {health.status_code}, as no broker does"
            yield not_checked("server", why, "check the proxies between this machine and the server")
            return
        self.may_be_ours = health.status_code == 200 and b'"status"' in health.content
        if not self.may_be_ours:
            yield Finding("server", WARNING, where, "it is not this broker: commands that need this broker fail")
        elif took > _SLOW_SECONDS:
            yield Finding("server", WARNING, where, "the server or the network is slow", "check the server's log")
        else:
            yield Finding("server", OK, f"{where}; this program is {version()}")


def _transport(session: Session) -> Iterator[Finding]:
    url = urlsplit(session.api.url)
    if url.scheme == "http" and url.hostname not in _LOCAL:
        state, what = (ERROR, "credentials and messages") if session.api.credentials else (WARNING, "messages")
        why = f"{what} can be read on the network"
        yield Finding("transport", state, "no TLS", why, "broker serve --tls-certificate FILE --tls-key FILE")


def _certificate(session: Session) -> Iterator[Finding]:
    """Checks the certificate of a server that is reached by TLS. Raises NotReached."""
    validity, now = session.api.certificate_validity(), machine_time()
    if validity is None:
        return
    until = f"{validity.ends:%Y-%m-%d %H:%M} UTC"
    if validity.state(now) is ValidityState.VALID:
        yield Finding("certificate", OK, f"valid until {until}")
        return
    left, lifetime = span_in_words(validity.ends - now), span_in_words(validity.lifetime)
    why = f"less than a third of its {lifetime} is left; a renewed file is used within seconds"
    yield Finding("certificate", WARNING, f"expires at {until}, in {left}", why, "broker docs operations tls")


def _readiness(session: Session) -> Iterator[Finding]:
    """Raises NotReached, and Refused for an answer that is not of a broker."""
    answer = session.api.get("/readyz")
    found = answer.json() if answer.content[:1] == b"{" else {}
    if answer.status_code == 200:
        yield Finding("ready", OK, "the database answers")
        yield from _storage(found.get("warnings", []))
        return
    if answer.status_code != 503 or "reason" not in found:
        raise Refused(str(answer.status_code), f"{session.api.url}/readyz does not answer as a broker does")
    yield Finding("ready", ERROR, "not ready", found["reason"], "broker docs runbooks database")
    yield not_checked("storage", "the broker is not ready", _AGAIN)


def _storage(warnings: list[str]) -> Iterator[Finding]:
    for warning in warnings:
        yield Finding("storage", ERROR, "publishing is paused", warning, "broker docs runbooks disk")
    if not warnings:
        yield Finding("storage", OK, "no storage limit pauses publishing")


def _permissions(session: Session, server: _Server) -> Iterator[Finding]:
    """Checks the permissions of the caller.  Raises Refused, NotKnown, NotReached."""
    body = {"permissions": _PERMISSIONS}
    try:
        held = session.api.call("POST", f"{session.project}:testIamPermissions", body).get("permissions", [])
    except Refused as error:
        if error.status != "UNAUTHENTICATED":
            raise
        yield Finding("permissions", ERROR, "not authenticated", error.reason, _WHO_MAY["UNAUTHENTICATED"])
        return
    except NotKnown:
        if server.may_be_ours:
            raise
        yield Finding("permissions", WARNING, "not known", "the server has no testIamPermissions")
        return
    missing = [name for name in _PERMISSIONS if name not in held]
    if missing:
        why = f"without {', '.join(missing)}"
        yield Finding("permissions", WARNING, "some are missing", why, _WHO_MAY["PERMISSION_DENIED"])
    else:
        yield Finding("permissions", OK, "topics and subscriptions may be listed and created")


def _project(session: Session) -> Iterator[Finding]:
    """Raises Refused, NotKnown, NotReached."""
    found = session.api.all_of(f"{session.project}/subscriptions", "subscriptions")
    topics = session.api.all_of(f"{session.project}/topics", "topics")
    yield Finding("project", OK, f"{session.short_project}: {len(topics)} topics, {len(found)} subscriptions")
    gone = [leaf(one["name"]) for one in found if one.get("topic") == "_deleted-topic_"]
    if gone:
        names = ", ".join(gone[:5]) + (", …" if len(gone) > 5 else "")
        why = f"{names}: no new messages arrive there"
        yield Finding(
            "topics", WARNING, "deleted, with subscriptions left", why, f"broker sub delete {leaf(gone[0])}"
        )
    for one in topics:
        if "frozen" in one:
            name, reason = leaf(one["name"]), one["frozen"].get("reason", "")
            why = f"it refuses publishes{f': {reason}' if reason else ''}"
            yield Finding(name, WARNING, "frozen", why, f"broker topic unfreeze {name}")


def _schedules(session: Session) -> Iterator[Finding]:
    """Finds schedules that are paused.  Raises Refused, NotKnown, NotReached."""
    for one in session.api.all_of(f"{session.project}/schedules", "schedules"):
        if one["state"] == "PAUSED":
            name = leaf(one["name"])
            since = f" since {one['pauseTime']}" if "pauseTime" in one else ""
            by = f", by {one['pausedBy']}" if "pausedBy" in one else ""
            why = f"it publishes nothing{since}{by}"
            yield Finding(name, WARNING, "paused", why, f"broker schedule resume {name}")


def _lags(session: Session) -> Iterator[Finding]:
    """Checks what delays subscriptions, and the clock.  Raises Refused, NotKnown, NotReached."""
    before = machine_time()
    answer = session.api.call("GET", f"{session.project}/lag", params={"pageSize": _MOST_LAGS, "fresh": "true"})
    after = machine_time()
    lags = answer.get("subscriptions", [])
    yield from _lagging(lags, answer.get("totalSize", len(lags)))
    yield from _warnings(lags)
    yield from _clock(lags, before, after)


def _warnings(lags: list[Json]) -> Iterator[Finding]:
    """Finds subscriptions about which something is wrong although it delays nothing."""
    warned = [one for one in lags if one.get("warnings")]
    for one in warned[:_MOST_SHOWN]:
        name = leaf(one["subscription"])
        why = " ".join(one["warnings"])
        yield Finding(name, WARNING, "has a warning", why, f"broker sub show {name}")
    if len(warned) > _MOST_SHOWN:
        yield Finding("warnings", WARNING, f"{len(warned) - _MOST_SHOWN} more subscriptions have some", "", _LAG)


def _lagging(lags: list[Json], total: int) -> Iterator[Finding]:
    lagging = [one for one in lags if one["deliveryState"] not in HEALTHY]
    for one in lagging[:_MOST_SHOWN]:
        name, state = leaf(one["subscription"]), one["deliveryState"]
        blocking = one.get("blockedKey", {}).get("messageId", "ID")
        command = _NEXT_STEPS.get(state, _LAG).format(name, message=blocking)
        yield Finding(name, WARNING, state, one.get("verdict", ""), command)
    if len(lagging) > _MOST_SHOWN:
        yield Finding("lag", WARNING, f"{len(lagging) - _MOST_SHOWN} more subscriptions lag", "", _LAG)
    elif not lagging and len(lags) < total:
        yield Finding("lag", OK, f"none of the {len(lags):,} of {total:,} subscriptions that are furthest behind")
    elif not lagging:
        yield Finding("lag", OK, "no subscription lags")


def _clock(lags: list[Json], before: datetime, after: datetime) -> Iterator[Finding]:
    """Checks the clock by an age and the time that it counts from: answers have no other present time.

    The answer was made between `before` and `after`, so an answer that took long is not taken for a skew.
    """
    for one in lags:
        if "oldestUndeliveredPublishTime" in one:
            age = timedelta(seconds=float(one["oldestUndeliveredMessageAge"].removesuffix("s")))
            now = parse_time(one["oldestUndeliveredPublishTime"]) + age
            skew = (now - min(max(now, before), after)).total_seconds()
            if abs(skew) > _SKEW_SECONDS:
                found = f"the server's is {skew:+.0f} s from this machine's"
                why = "tokens that are signed here are valid by this machine's clock"
                yield Finding("clock", ERROR, found, why, "set this machine's clock, or the database's")
            else:
                yield Finding("clock", OK, "as the server's")
            return
