"""`broker schedule`."""

from base64 import b64encode

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.messages import message_fields
from broker.cli.client.output import Shown
from broker.cli.client.words import as_typed, duration_text, future_text, leaf, pairs, short_time
from broker.cli.command_line import Group
from broker.cli.stop import Misuse

COMMANDS = Group("schedule", help="Schedules: messages that are published again and again; these need this broker.")
_schedule = click.argument("schedule")


@calling(COMMANDS, "list", "broker schedule list")
def list_(session: Session) -> Shown:
    """List the schedules of a project."""
    found = session.api.all_of(f"{session.project}/schedules", "schedules")
    rows = [
        [leaf(one["name"]), leaf(one["topic"]), _times(one), one["state"], short_time(one.get("nextTime"))]
        for one in found
    ]
    columns = ("schedule", "topic", "ticks", "state", "next")
    nothing = "There is no schedule; `broker schedule create` makes one."
    whole, minor = ("topic", "state", "next"), ("topic", "state")
    return Shown(data=found, columns=columns, rows=rows, whole=whole, minor=minor, nothing=nothing)


@calling(
    COMMANDS,
    "create",
    "broker schedule create nightly 'Close up.' --topic jobs --cron '30 2 * * *'",
    "broker schedule create beat '{{tick}}' --topic jobs --every 90s --template",
)
@_schedule
@click.argument("text")
@click.option("--topic", metavar="TOPIC", required=True, help="Where it publishes.")
@click.option("--cron", metavar="CRON", help="Five fields, or six with the seconds first.")
@click.option("--every", metavar="DURATION", help="In place of it: 90s, 2h, 7d.")
@click.option("--time-zone", metavar="ZONE", help="Of --cron, such as Europe/Berlin; UTC otherwise.")
@click.option("--start", metavar="TIME", help="No tick is before it.")
@click.option("--end", metavar="TIME", help="No tick is after it.")
@click.option(
    "--missed", type=click.Choice(["skip", "one", "all"]), help="Of ticks while no broker ran; one if not given."
)
@click.option("--template", is_flag=True, help="Replace {{time}}, {{schedule}} and {{tick}}.")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Of each message; repeatable.")
@click.option("--ordering-key", metavar="KEY", help="Of each message.")
def create(session: Session, *, schedule: str, text: str, topic: str, **given: str) -> Shown:
    """Make a schedule, or change one of that name."""
    if bool(given["cron"]) == bool(given["every"]):
        raise Misuse("give --cron or --every")
    message: Json = {"data": b64encode(as_typed(text)).decode()}
    message |= {"attributes": pairs(given["attributes"], "--attribute")} if given["attributes"] else {}
    message |= {"orderingKey": given["ordering_key"]} if given["ordering_key"] else {}
    body: Json = {
        "topic": session.topic(topic),
        "template" if given["template"] else "message": message,
        "schedule": given["cron"],
        "interval": duration_text(given["every"], "--every") if given["every"] else None,
        "timeZone": given["time_zone"],
        "start": future_text(given["start"], "--start") if given["start"] else None,
        "end": future_text(given["end"], "--end") if given["end"] else None,
        "missed": given["missed"] and given["missed"].upper(),
    }
    name = session.schedule(schedule)
    made = session.api.call("PUT", name, {field: value for field, value in body.items() if value})
    return Shown(data=made, line=f"{leaf(name)} ticks next at {short_time(made.get('nextTime')) or '…'}.")


@calling(COMMANDS, "show", "broker schedule show nightly")
@_schedule
def show(session: Session, *, schedule: str) -> Shown:
    """Show a schedule, and what it publishes."""
    found = session.api.call("GET", session.schedule(schedule))
    told = {name: part for name, part in found.items() if name not in ("message", "template")}
    return Shown(data=found, fields=told | message_fields(found.get("message") or found.get("template") or {}))


@calling(COMMANDS, "next", "broker schedule next nightly --max 3")
@_schedule
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 100), default=10, show_default=True)
def next_(session: Session, *, schedule: str, most: int) -> Shown:
    """Say when the next ticks are."""
    found = session.api.call("GET", f"{session.schedule(schedule)}:next", params={"pageSize": most}).get(
        "times", []
    )
    rows = [[short_time(moment)] for moment in found]
    return Shown(data=found, columns=("tick",), rows=rows, nothing="None: it has ended.")


@calling(COMMANDS, "run", "broker schedule run nightly")
@_schedule
def run(session: Session, *, schedule: str) -> Shown:
    """Publish its message now, once more than it has planned."""
    ran = session.api.call("POST", f"{session.schedule(schedule)}:run", {})
    return Shown(data=ran, line=f"Published message {ran['messageId']}.")


@calling(COMMANDS, "history", "broker schedule history nightly")
@_schedule
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 100), default=20, show_default=True)
def history(session: Session, *, schedule: str, most: int) -> Shown:
    """Say what became of the last ticks, the newest first."""
    found = session.api.call("GET", f"{session.schedule(schedule)}/ticks", params={"pageSize": most}).get(
        "ticks", []
    )
    rows = [
        [
            short_time(one.get("tickTime")) or "by hand",
            short_time(one["runTime"]),
            one["outcome"],
            one.get("messageId", ""),
            one.get("reason", ""),
        ]
        for one in found
    ]
    columns = ("tick", "ran", "outcome", "message", "reason")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=columns[:4],
        cut=("reason",),
        minor=("ran",),
        nothing="It has not ticked yet.",
    )


@calling(COMMANDS, "pause", "broker schedule pause nightly")
@_schedule
def pause(session: Session, *, schedule: str) -> Shown:
    """Let nothing tick until it is resumed."""
    name = session.schedule(schedule)
    return Shown(data=session.api.call("POST", f"{name}:pause", {}), line=f"Paused {leaf(name)}.")


@calling(COMMANDS, "resume", "broker schedule resume nightly")
@_schedule
def resume(session: Session, *, schedule: str) -> Shown:
    """Go on with the first tick from now on."""
    name = session.schedule(schedule)
    resumed = session.api.call("POST", f"{name}:resume", {})
    return Shown(data=resumed, line=f"{leaf(name)} ticks next at {short_time(resumed.get('nextTime'))}.")


@calling(COMMANDS, "delete", "broker schedule delete nightly")
@_schedule
@YES
def delete(session: Session, *, schedule: str, yes: bool) -> Shown:
    """Delete a schedule and its history."""
    name = session.schedule(schedule)
    confirm(f"Delete the schedule {name} and its history?", yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the schedule {leaf(name)}.")


def _times(schedule: Json) -> str:
    zone = schedule.get("timeZone", "UTC")
    if "schedule" in schedule:
        return f"{schedule['schedule']} {zone}"
    return f"every {schedule['interval']}"
