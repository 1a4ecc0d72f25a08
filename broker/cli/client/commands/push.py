"""`broker push`."""

import base64

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.exit_codes import DONE, REFUSED
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group

COMMANDS = Group("push", help="How pushes to an endpoint go; these need this broker.")
_subscription = click.argument("subscription")


@calling(COMMANDS, "status", "broker push status hook")
@_subscription
def status(session: Session, *, subscription: str) -> Shown:
    """Show whether a subscription is pushed, and what its endpoint can take."""
    found = session.api.call("GET", f"{session.subscription(subscription)}:pushStatus")
    return Shown(data=found, fields=found)


@calling(COMMANDS, "failures", "broker push failures hook")
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
        data=found, columns=columns, rows=rows, whole=columns[:5], cut=("detail",), nothing="None has failed."
    )


@calling(COMMANDS, "pause", "broker push pause hook --reason 'The receiver moves.'")
@_subscription
@click.option("--reason", metavar="TEXT", default="", help="Is shown to whoever asks.")
def pause(session: Session, *, subscription: str, reason: str) -> Shown:
    """Push nothing until it is resumed; messages wait."""
    name = session.subscription(subscription)
    answer = session.api.call("POST", f"{name}:pausePush", {"reason": reason})
    return Shown(data=answer, line=f"Paused {name}.")


@calling(COMMANDS, "resume", "broker push resume hook")
@_subscription
def resume(session: Session, *, subscription: str) -> Shown:
    """End a pause, whoever began it."""
    name = session.subscription(subscription)
    return Shown(data=session.api.call("POST", f"{name}:resumePush", {}), line=f"Resumed {name}.")


@calling(COMMANDS, "test", "broker push test hook 'Is anybody there?'")
@_subscription
@click.argument("text", required=False)
def test(session: Session, *, subscription: str, text: str | None) -> Shown | int:
    """Send one message to the endpoint, and show what it answers; exit code 1 if it does not take it."""
    body: Json = {} if text is None else {"message": {"data": base64.b64encode(text.encode()).decode()}}
    answer = session.api.call("POST", f"{session.subscription(subscription)}:testPush", body)
    session.out.show(Shown(data=answer, fields=answer))
    return DONE if answer.get("delivered") else REFUSED


@calling(COMMANDS, "resend", "broker push resend billing $ID")
@_subscription
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def resend(session: Session, *, subscription: str, ids: tuple[str, ...]) -> Shown:
    """Deliver retained messages once more to this subscription alone, pushed or pulled, even if they were acked."""
    name = session.subscription(subscription)
    answer = session.api.call("POST", f"{name}:resend", {"messageIds": list(ids)})
    told = ", ".join(f"{count} {outcome}" for outcome, count in answer["counts"].items())
    return Shown(data=answer, line=f"Of {leaf(name)}: {told}.")
