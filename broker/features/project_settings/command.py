"""The options of `broker mask`, `broker view`, `broker template` and `broker link`."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.connection import full_name
from broker.client.output import Shown
from broker.client.stop import Misuse
from broker.client.words import as_typed, pairs

_TITLE = click.option("--title", metavar="TEXT", help="What people read.")
RULE_OPTIONS = (
    click.option("--topic", "topics", metavar="PATTERN", multiple=True, help="Ids of topics; repeatable."),
    click.option("--sub", "subscriptions", metavar="PATTERN", multiple=True, help="Ids of these; repeatable."),
    click.option("--attribute", "attributes", metavar="PATTERN", multiple=True, help="Its value; repeatable."),
    click.option("--field", "fields", metavar="PATH", multiple=True, help="Of a JSON body: $.card; repeatable."),
    _TITLE,
)
VIEW_OPTIONS = (
    click.option("--page", metavar="PATH", help="Of the console, such as topics/orders/messages."),
    click.option("--query", metavar="NAME=VALUE", multiple=True, help="A parameter of the page; repeatable."),
    _TITLE,
)
TEMPLATE_OPTIONS = (
    click.option("--topic", metavar="TOPIC", help="Where it is to be published."),
    click.option("--data", metavar="TEXT", help="Of the message."),
    click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Repeatable."),
    click.option("--ordering-key", metavar="KEY"),
    _TITLE,
)
LINK_OPTIONS = (
    click.option("--to", "target", metavar="URL", help="Such as https://traces.example.com/{traceId}."),
    click.option("--topic", "topics", metavar="PATTERN", multiple=True, help="Ids of topics; repeatable."),
    _TITLE,
)


def rule_body(_: Session, **given: Any) -> Json:
    return _given({name: list(value) if isinstance(value, tuple) else value for name, value in given.items()})


def link_body(session: Session, *, target: str | None, **given: Any) -> Json:
    return rule_body(session, url=target, **given)


def view_body(_: Session, *, page: str | None, query: tuple[str, ...], title: str | None) -> Json:
    """Raises Misuse."""
    return _given({"title": title, "page": page, "query": pairs(query, "--query")})


def template_body(session: Session, *, topic: str | None, data: str | None, **given: Any) -> Json:
    """Raises Misuse."""
    body = {
        "title": given["title"],
        "topic": session.topic(topic) if topic else None,
        "data": b64encode(as_typed(data)).decode() if data else None,
        "attributes": pairs(given["attributes"], "--attribute"),
        "orderingKey": given["ordering_key"],
    }
    return _given(body)


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value}


def make_update(
    noun: str, collection: str, options: Sequence[Callable[..., Any]], body: Callable[..., Json], example: str
) -> click.Command:
    """A command that changes the fields that its options name."""

    def update(session: Session, *, name: str, **given: Any) -> Shown:
        """Change what is named; the rest stays."""
        wanted = body(session, **given)
        if not wanted:
            raise Misuse("nothing to change: give an option such as --title")
        path = full_name(name, collection, session.short_project)
        changed = session.api.call("PATCH", path, wanted)
        return Shown(data=changed, line=f"Changed the {noun} {path}.")

    for option in reversed((click.argument("name"), *options)):
        update = option(update)
    return calling("update", example)(update)


def title(setting: Json) -> str:
    return str(setting.get("title", ""))


def joined(field: str) -> Callable[[Json], str]:
    """Reads a field that is a list."""
    return lambda setting: ", ".join(setting.get(field, []))
