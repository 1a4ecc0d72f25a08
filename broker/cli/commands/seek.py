"""`broker seek`."""

from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.confirming import YES, Loss, confirm_loss
from broker.client.output import Shown
from broker.client.safeguards import safeguarded, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.words import counted, size, time_text


@calling(
    "seek",
    "broker seek billing --time 1h --preview",
    "broker seek billing --time 1h --dry-run",
    "broker seek billing --time 1h",
    "broker seek billing --snapshot before-release --undoable",
    "broker seek billing --undo --preview",
    "broker seek billing --undo",
)
@click.argument("subscription")
@click.option(
    "--time", "moment", metavar="TIME", help="What was published from then on comes, as far as it is kept."
)
@click.option("--snapshot", metavar="SNAPSHOT", help="What was not acknowledged when it was made comes again.")
@click.option("--undoable", is_flag=True, help="Keep for an hour where it was; needs this broker.")
@click.option("--preview", is_flag=True, help="Say what it would bring about; needs this broker.")
@safeguarded
@YES
@click.option("--undo", is_flag=True, help="Back to where it was before the last seek or purge that was undoable.")
def seek(
    session: Session,
    *,
    subscription: str,
    moment: str | None,
    snapshot: str | None,
    undoable: bool,
    preview: bool,
    yes: bool,
    undo: bool,
    **safeguards: Any,
) -> Shown:
    """Move a subscription back or forward; TIME is a time, `now`, or how long ago (1h)."""
    if bool(moment) + bool(snapshot) + undo != 1:
        raise Misuse("give one of --time, --snapshot and --undo")
    name = session.subscription(subscription)
    if undo:
        if any(safeguards.values()):
            raise Misuse("--dry-run, --expected-count and --tolerance-percent are for --time and --snapshot")
        if preview:
            answer = session.api.call("POST", f"{name}:previewSeek", {"undo": True})
            return Shown(data=answer, line=_said_of_preview(answer))
        answer = session.api.call("POST", f"{name}:undoSeek", {})
        return Shown(data=answer, line=f"{subscription} is back where it was{_replayed(answer)}.")
    body: Json = {"time": time_text(moment, "--time", machine_time())} if moment else {}
    body |= {"snapshot": session.snapshot(snapshot)} if snapshot else {}
    if preview:
        answer = session.api.call("POST", f"{name}:previewSeek", body)
        return Shown(data=answer, line=_said_of_preview(answer))
    body |= taken(session.api, safeguards)
    if "validateOnly" in body:
        return shown_preview(name, session.api.call("POST", f"{name}:seek", body))
    if not undoable:
        confirm_loss(f"Seek {name}?", [Loss("what it skips", lambda: _loss(session, name, body))], yes=yes)
    body |= {"undoable": True} if undoable else {}
    answer = session.api.call("POST", f"{name}:seek", body)
    return Shown(data=answer, line=said_of_seek(subscription, answer))


def _loss(session: Session, name: str, body: Json) -> str:
    answer = session.api.call("POST", f"{name}:previewSeek", body)
    count, about = int(answer.get("skippedMessages", 0)), "about " if answer.get("estimated") else ""
    return (
        f"{about}{counted(count, 'undelivered message')} would be skipped; with --undoable that can be undone"
        if count
        else ""
    )


def said_of_seek(subscription: str, answer: Json) -> str:
    lost = f" Not retained: {answer['notRetained']}" if answer.get("notRetained") else ""
    return f"{subscription} has moved{_replayed(answer)}.{lost}"


def _replayed(answer: Json) -> str:
    """Google's own answer is empty."""
    if "replayedMessages" not in answer:
        return ""
    count = answer["replayedMessages"]
    at_least = "at least " if answer.get("replayedMessagesAtLeast") else ""
    return f"; {at_least}{counted(count, 'message')} {'is' if count == 1 else 'are'} waiting again"


def _said_of_preview(answer: Json) -> str:
    about = "about " if answer.get("estimated") else ""
    again, skipped = (
        f"{about}{counted(answer.get(f'{what}Messages', 0), 'message')} ({size(answer.get(f'{what}Bytes', 0))})"
        for what in ("replayed", "skipped")
    )
    lost = answer.get("notRetainedMessages", 0)
    gone = f" {lost:,} more of that range are not retained." if lost else ""
    return f"{again} would wait again, {skipped} would be skipped.{gone}"


COMMANDS = seek
