"""The commands of `broker schedule` that broker/cli/resources.py does not generate."""

from base64 import b64encode

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.messages import message_fields
from broker.client.output import Shown
from broker.client.stop import Misuse
from broker.client.words import as_typed, duration_text, future_text, leaf, pairs, short_time

CREATE_OPTIONS = (
    click.argument("text", required=False),
    click.option("--topic", metavar="TOPIC", required=True, help="Where it publishes."),
    click.option("--cron", metavar="CRON", help="Five fields, or six with the seconds first."),
    click.option("--every", metavar="DURATION", help="In place of it: 90s, 2h, 7d."),
    click.option("--time-zone", metavar="ZONE", help="Of --cron, such as Europe/Berlin; UTC otherwise."),
    click.option("--start", metavar="TIME", help="No tick is before it."),
    click.option("--end", metavar="TIME", help="No tick is after it."),
    click.option(
        "--missed",
        type=click.Choice(["skip", "one", "all"]),
        help="Of ticks while no broker ran; one if not given.",
    ),
    click.option("--template", is_flag=True, help="Replace {{time}}, {{schedule}} and {{tick}}."),
    click.option(
        "--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Of each message; repeatable."
    ),
    click.option("--ordering-key", metavar="KEY", help="Of each message."),
)
_schedule = click.argument("schedule")


def make_body(session: Session, *, text: str | None, topic: str, **given: str) -> Json:
    """A schedule as the options give it; without a text one that is there keeps its message.  Raises Misuse."""
    if bool(given["cron"]) == bool(given["every"]):
        raise Misuse("give --cron or --every")
    message: Json = {} if text is None else {"data": b64encode(as_typed(text)).decode()}
    message |= {"attributes": pairs(given["attributes"], "--attribute")} if given["attributes"] else {}
    message |= {"orderingKey": given["ordering_key"]} if given["ordering_key"] else {}
    if text is None and (message or given["template"]):
        raise Misuse("--attribute, --ordering-key and --template are of a message: give TEXT")
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
    return {field: value for field, value in body.items() if value}


def next_tick(name: str, schedule: Json) -> str:
    return f"{leaf(name)} ticks next at {short_time(schedule.get('nextTime')) or '…'}."


def fields(schedule: Json) -> Json:
    """A schedule for people: the fields of its message beside its own."""
    own = {name: part for name, part in schedule.items() if name not in ("message", "template")}
    return own | message_fields(schedule.get("message") or schedule.get("template") or {})


@calling("next", "broker schedule next nightly --max 3")
@_schedule
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 100), default=10, show_default=True)
def next_(session: Session, *, schedule: str, most: int) -> Shown:
    """Say when the next ticks are."""
    found = session.api.call("GET", f"{session.schedule(schedule)}:next", params={"pageSize": most}).get(
        "times", []
    )
    rows = [[short_time(moment)] for moment in found]
    return Shown(data=found, columns=("tick",), rows=rows, nothing="None: it has ended.")


@calling("history", "broker schedule history nightly")
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


def times(schedule: Json) -> str:
    zone = schedule.get("timeZone", "UTC")
    if "schedule" in schedule:
        return f"{schedule['schedule']} {zone}"
    return f"every {schedule['interval']}"
