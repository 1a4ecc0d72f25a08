"""The commands of `broker topic` that broker/cli/resources.py does not generate."""

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

import click

from broker.client import terminal
from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.exit_codes import DONE
from broker.client.fields import LABEL, SET, assign, given
from broker.client.filter_test import FILTER_OPTIONS, show_filter_test
from broker.client.messages import PREVIEW, message_row, shown_messages
from broker.client.operations import finished, wait_for
from broker.client.output import Shown
from broker.client.priorities import priorities_of, priorities_options
from broker.client.stop import Misuse
from broker.client.words import duration_text, leaf, pairs, short_time, size, time_text

OPTIONS = (  # of `create` and `update`
    click.option("--retention", metavar="DURATION", help="Keep messages so long, acknowledged or not: 7d."),
    click.option(
        "--shards", metavar="N", type=click.IntRange(1, 256), help="Logs of the topic: more, but not fewer."
    ),
    priorities_options,
    LABEL,
    SET,
)
_BAR = 30  # characters of the longest bar of a histogram
_topic = click.argument("topic")


def make_body(
    _: Session,
    *,
    retention: str | None,
    shards: int | None,
    labels: tuple[str, ...],
    assigned: tuple[str, ...],
    levels: int | None,
    age: str | None,
    weights: str | None,
) -> Json:
    """The fields of a topic that the options give.  Raises Misuse."""
    fields = {
        "messageRetentionDuration": duration_text(retention, "--retention") if retention else None,
        "extensions.shards": shards,
        "extensions.priorities": priorities_of(levels, age, weights),
        "labels": pairs(labels, "--label"),
    }
    return assign(given(fields), assigned)


LIST_OPTIONS = (
    click.option(
        "--stats", is_flag=True, help="With publishes a second, size and subscriptions; needs this broker."
    ),
)


def find(session: Session, *, stats: bool) -> list[Json]:
    """The topics of the project, with their figures if these are wanted."""
    return session.api.all_of(f"{session.project}/topics", "topics", {"view": "STATS"} if stats else None)


def _stat(name: str, text: Callable[[Any], str]) -> Callable[[Json], str]:
    """Returns what reads a figure of a topic, as text; "" without figures."""

    def read(topic: Json) -> str:
        value = topic.get("stats", {}).get(name)
        return "" if value is None else text(value)

    return read


STATS_COLUMNS: Mapping[str, Callable[[Json], str]] = {
    "in/s": _stat("publishedMessagesPerSecond", lambda rate: f"{rate:,g}"),
    "retained": _stat("retainedMessagesEstimate", lambda count: f"{count:,}"),
    "size": _stat("retainedBytesEstimate", size),
    "subs": _stat("subscriptionCount", lambda count: f"{count:,}"),
    "worst": _stat("worstSubscription", lambda one: f"{one['deliveryState']} {leaf(one['subscription'])}"),
}


def read_with_subscriptions(session: Session, name: str) -> Json:
    found = session.api.call("GET", name)
    return found | {"subscriptions": session.api.all_of(f"{name}/subscriptions", "subscriptions")}


@calling(
    "browse",
    "broker topic browse orders",
    "broker topic browse orders --since 1h --oldest --max 5",
    "broker topic browse orders --contains order --preview 3",
)
@_topic
@click.option(
    "--filter", "filter_text", metavar="FILTER", help='Only what it matches, such as attributes.env="prod".'
)
@click.option("--ordering-key", metavar="KEY", help="Only those of this key.")
@click.option("--contains", metavar="TEXT", help="Only bodies that contain it.")
@click.option("--since", metavar="TIME", help="Published from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Published before then.")
@click.option("--oldest", is_flag=True, help="The oldest first; default: the newest.")
@PREVIEW
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=20, show_default=True)
def browse(session: Session, *, topic: str, filter_text: str, oldest: bool, most: int, **chosen: Any) -> Shown:
    """List the messages that a topic retains, whoever has got them; needs this broker."""
    now = machine_time()
    params = {
        "filter": filter_text,
        "orderingKey": chosen["ordering_key"],
        "startTime": time_text(chosen["since"], "--since", now) if chosen["since"] else None,
        "endTime": time_text(chosen["until"], "--until", now) if chosen["until"] else None,
        "order": "oldest" if oldest else None,
        "contains": chosen["contains"],
        "previewBytes": chosen["preview"],
    }
    found = session.api.all_of(f"{session.topic(topic)}/messages", "messages", params, most)
    return shown_messages(found, [message_row(one) for one in found], nothing="No such message is retained.")


@calling(
    "histogram", "broker topic histogram orders --buckets 1", "broker topic histogram orders --since 1h --buckets 2"
)
@_topic
@click.option("--buckets", metavar="N", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--since", metavar="TIME", help="Published from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Published before then.")
def histogram(session: Session, *, topic: str, buckets: int, since: str | None, until: str | None) -> Shown:
    """Show how many messages were published when, of those that a topic retains; needs this broker."""
    now = machine_time()
    params = {
        "buckets": buckets,
        "startTime": time_text(since, "--since", now) if since else None,
        "endTime": time_text(until, "--until", now) if until else None,
    }
    found = session.api.call("GET", f"{session.topic(topic)}:histogram", params=params)
    most = max(one["messageCount"] for one in found["buckets"]) or 1
    rows = [
        [
            short_time(one["startTime"]),
            f"{one['messageCount']:,}",
            size(one["byteCount"]),
            "#" * -(-one["messageCount"] * _BAR // most),
        ]
        for one in found["buckets"]
    ]
    return Shown(data=found, columns=("from", "messages", "size", ""), rows=rows, whole=("messages", "size", ""))


@calling("publishers", "broker topic publishers jobs")
@_topic
def publishers(session: Session, *, topic: str) -> Shown:
    """List what publishes on a topic without a caller: schedules, dead-letter policies, operations, events.

    What belongs to another project publishes as the service agent of that project, and only while this has a role
    on the topic: `broker auth policy remove` with that agent ends it. Needs this broker.
    """
    name = session.topic(topic)
    found = session.api.all_of(f"{name}:publishers", "publishers")
    rows = [
        [one["name"], one["kind"], one["state"], one.get("serviceAgent", ""), one.get("createdBy", "")]
        for one in found
    ]
    return Shown(
        data=found,
        columns=("name", "kind", "state", "service agent", "created by"),
        rows=rows,
        whole=("kind", "state"),
        minor=("created by",),
        nothing=f"Nothing publishes on {leaf(name)} by itself.",
    )


@calling(
    "copy",
    "broker topic copy orders replay --since 1h --dry-run",
    "broker topic copy orders replay --rate 500",
)
@_topic
@click.argument("target")
@click.option("--filter", "filter_text", metavar="FILTER", help="Only what it matches.")
@click.option("--since", metavar="TIME", help="Published from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Published before then.")
@click.option("--rate", metavar="N", type=click.FloatRange(0.01), help="So many messages a second at the most.")
@click.option("--dry-run", is_flag=True, help="Say how many it would be.")
@click.option("--no-wait", is_flag=True, help="Do not wait for its end.")
def copy(session: Session, *, topic: str, target: str, dry_run: bool, no_wait: bool, **chosen: Any) -> int:
    """Publish what a topic retains anew on another one, in the order of keys. Needs this broker."""
    now, into = machine_time(), session.topic(target)
    fields = {
        "targetTopic": into,
        "filter": chosen["filter_text"],
        "startTime": time_text(chosen["since"], "--since", now) if chosen["since"] else None,
        "endTime": time_text(chosen["until"], "--until", now) if chosen["until"] else None,
        "maxMessagesPerSecond": chosen["rate"],
        "validateOnly": dry_run,
    }
    name = session.topic(topic)
    started = session.api.call("POST", f"{name}:copy", {name: part for name, part in fields.items() if part})
    if dry_run:
        count = started["metadata"].get("total", "0")
        session.out.show(Shown(data=started, line=f"{count} would be copied to {leaf(into)}."))
        return DONE
    return finished(session.out, started if no_wait else wait_for(session.api, session.out, started))


@calling(
    "export",
    "broker topic export orders --since 1h > orders.jsonl",
    "broker topic export orders --format avro --codec deflate > orders.avro",
)
@_topic
@click.option("--filter", "filter_text", metavar="FILTER", help="Only what it matches.")
@click.option("--since", metavar="TIME", help="Published from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Published before then.")
@click.option("--format", "format_", type=click.Choice(["jsonl", "avro"]), default="jsonl", show_default=True)
@click.option("--codec", type=click.Choice(["null", "deflate"]), help="Of avro: how blocks are compressed.")
def export(session: Session, *, topic: str, filter_text: str, format_: str, codec: str | None, **times: Any) -> int:
    """Print what a topic retains, as import takes it: lines of JSON or a file of Avro. Needs this broker."""
    if format_ == "avro" and terminal.is_terminal():
        raise Misuse("--format avro is binary, which no terminal can show: redirect it, as in `> FILE`")
    now, name = machine_time(), f"{session.topic(topic)}:export"
    body = {
        "filter": filter_text,
        "startTime": time_text(times["since"], "--since", now) if times["since"] else None,
        "endTime": time_text(times["until"], "--until", now) if times["until"] else None,
        "format": "AVRO" if format_ == "avro" else None,
        "codec": codec.upper() if codec else None,
    }
    given_ones = {name: part for name, part in body.items() if part}
    if format_ == "avro":
        for piece in session.api.pieces(name, given_ones):
            terminal.write_bytes(piece)
    else:
        for line in session.api.lines(name, given_ones):
            terminal.write_json_line(line)
    return DONE


@calling(
    "import",
    "broker topic import replay --file orders.jsonl",
    "broker topic import replay --file orders.avro",
)
@_topic
@click.option(
    "--file", metavar="FILE", default="-", help="Lines of JSON or Avro, as export prints them; default: stdin."
)
@click.option("--id", "import_id", metavar="ID", help="Of this import: one that did not end goes on under its id.")
@click.option(
    "--keep-expiry", is_flag=True, help="Count the time to live of messages from now on; default: ignore it."
)
def import_(session: Session, *, topic: str, file: str, import_id: str | None, keep_expiry: bool) -> Shown:
    """Publish lines of JSON, or a file of Avro, in parts of which each is stored once. Needs this broker."""
    from broker.features.import_export.importing import import_messages  # takes long to import

    options = {"expiry": "KEEP"} if keep_expiry else {}
    import_id = import_id or token_hex(8)
    count, repeated = import_messages(session.api, session.topic(topic), file, import_id, **options)
    again = f", {repeated} of which were stored before" if repeated else ""
    data = {"messageCount": str(count), "repeatedMessageCount": str(repeated)}
    return Shown(data=data, line=f"Imported {count} messages{again}.")


@calling("test-filter", "broker topic test-filter orders 'attributes.env = \"prod\"'")
@click.argument("topic")
@click.argument("filter_text", metavar="FILTER")
@FILTER_OPTIONS
def test_filter(session: Session, *, topic: str, filter_text: str, **options: Any) -> Shown:
    """Show which retained messages of a topic FILTER matches, before a subscription has it; needs this broker."""
    return show_filter_test(session, session.topic(topic), filter_text, **options)
