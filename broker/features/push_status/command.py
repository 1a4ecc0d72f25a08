"""The commands of `broker push` that broker/cli/resources.py does not generate."""

import base64

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.exit_codes import DONE, REFUSED
from broker.client.operations import finished, wait_for
from broker.client.output import Shown
from broker.client.words import as_typed, leaf, outcomes_text, short_time, time_text

_subscription = click.argument("subscription")


@calling("failures", "broker push failures hook")
@_subscription
@click.option("--message", "message_id", metavar="ID", help="Only those of this message.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 100), default=20, show_default=True)
def failures(session: Session, *, subscription: str, message_id: str | None, most: int) -> Shown:
    """List the last requests that failed, the newest first."""
    path = f"{session.subscription(subscription)}:pushFailures"
    found = session.api.all_of(path, "pushFailures", {"messageId": message_id}, most)
    rows = [
        [
            short_time(one["failTime"]),
            one["messageId"],
            str(one["deliveryAttempt"]),
            str(one.get("status", "")),
            one["latency"],
            one["detail"],
        ]
        for one in found
    ]
    columns = ("time", "message", "attempt", "status", "latency", "detail")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=columns[:5],
        cut=("detail",),
        minor=("latency", "attempt"),
        nothing="No push has failed.",
    )


@calling("attempts", "broker push attempts hook", "broker push attempts hook --outcome failed --since 1h")
@_subscription
@click.option("--outcome", type=click.Choice(["delivered", "failed"]), help="Only these.")
@click.option("--since", metavar="TIME", help="From then on: a time, or how long ago (1h); at most a day.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=20, show_default=True)
def attempts(session: Session, *, subscription: str, outcome: str | None, since: str | None, most: int) -> Shown:
    """Count requests by minute and status, the newest first: those that succeeded, too."""
    path = f"{session.subscription(subscription)}:pushAttempts"
    start = time_text(since, "--since", machine_time()) if since else None
    params = {"outcome": outcome.upper() if outcome else None, "since": start}
    found = session.api.all_of(path, "pushAttempts", params, most)
    rows = [
        [
            short_time(one["minuteTime"]),
            one["outcome"].lower(),
            one["status"],
            one["requests"],
            one["averageLatency"],
            one["lastMessageId"],
        ]
        for one in found
    ]
    columns = ("minute", "outcome", "status", "requests", "latency", "last message")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=columns,
        minor=("last message", "latency"),
        nothing="No push was counted in the last day.",
    )


@calling("set-endpoint", "broker push set-endpoint hook $SINK")
@_subscription
@click.argument("endpoint")
def set_endpoint(session: Session, *, subscription: str, endpoint: str) -> Shown:
    """Push to ENDPOINT from now on, or with '' let messages be pulled; other push settings become the default."""
    name = session.subscription(subscription)
    body = {"pushConfig": {"pushEndpoint": endpoint} if endpoint else {}}
    done = session.api.call("POST", f"{name}:modifyPushConfig", body)
    return Shown(
        data=done, line=f"{leaf(name)} is pushed to {endpoint}." if endpoint else f"{leaf(name)} is pulled."
    )


@calling("test", "broker push test hook 'Is anybody there?'")
@_subscription
@click.argument("text", required=False)
def test(session: Session, *, subscription: str, text: str | None) -> Shown | int:
    """Send one message to the endpoint, and show what it answers; exit code 1 if it does not take it."""
    body: Json = {} if text is None else {"message": {"data": base64.b64encode(as_typed(text)).decode()}}
    answer = session.api.call("POST", f"{session.subscription(subscription)}:testPush", body)
    session.out.show(Shown(data=answer, fields=answer))
    return DONE if answer.get("delivered") else REFUSED


@calling("resend", "broker push resend billing $ID")
@_subscription
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def resend(session: Session, *, subscription: str, ids: tuple[str, ...]) -> Shown:
    """Deliver retained messages once more to this subscription alone, pushed or pulled, even if they were acked."""
    name = session.subscription(subscription)
    answer = session.api.call("POST", f"{name}:resend", {"messageIds": list(ids)})
    return Shown(data=answer, line=f"Of {leaf(name)}: {outcomes_text(answer)}.")


_since = click.option("--since", metavar="TIME", required=True, help="From then on: a time, or how long ago (1h).")
_rate = click.option("--rate", metavar="N", type=click.FloatRange(0.001), help="So many a second at the most.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say how many it would be.")
_no_wait = click.option("--no-wait", is_flag=True, help="Do not wait for its end.")


@calling("recover", "broker push recover hook --since 1h --dry-run", "broker push recover hook --since 1h")
@_subscription
@_since
@_rate
@_dry_run
@_no_wait
def recover(
    session: Session, *, subscription: str, since: str, rate: float | None, dry_run: bool, no_wait: bool
) -> int:
    """Bring back what was dead-lettered since a time: dead-lettered after its pushes failed, or too old."""
    body: Json = {"startTime": time_text(since, "--since", machine_time())}
    name = session.subscription(subscription)
    return _operation(session, f"{name}:recover", body, "come back to", rate, dry_run=dry_run, no_wait=no_wait)


@calling(
    "replay-missing",
    "broker push replay-missing hook --since 1h --dry-run",
    "broker push replay-missing hook --since 1h --rate 500",
)
@_subscription
@_since
@click.option("--endpoint-since", metavar="TIME", help="Since when the endpoint is new; else since it was set.")
@_rate
@_dry_run
@_no_wait
def replay_missing(
    session: Session,
    *,
    subscription: str,
    since: str,
    endpoint_since: str | None,
    rate: float | None,
    dry_run: bool,
    no_wait: bool,
) -> int:
    """Push to a new endpoint what was published since a time and before it, and which it has not taken."""
    now = machine_time()
    body: Json = {"startTime": time_text(since, "--since", now)}
    if endpoint_since:
        body["endpointTime"] = time_text(endpoint_since, "--endpoint-since", now)
    name = session.subscription(subscription)
    path, what = f"{name}:replayMissing", "be looked at for"
    return _operation(session, path, body, what, rate, dry_run=dry_run, no_wait=no_wait)


def _operation(
    session: Session, path: str, body: Json, what: str, rate: float | None, *, dry_run: bool, no_wait: bool
) -> int:
    body |= {"maxMessagesPerSecond": rate} if rate else {}
    started = session.api.call("POST", path, body | ({"validateOnly": True} if dry_run else {}))
    if dry_run:
        metadata = started["metadata"]
        most = "Up to " if metadata.get("totalIsEstimate") else ""
        line = f"{most}{metadata.get('total', '0')} messages would {what} {leaf(metadata['target'])}."
        session.out.show(Shown(data=started, line=line))
        return DONE
    return finished(session.out, started if no_wait else wait_for(session.api, session.out, started))
