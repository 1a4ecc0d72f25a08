"""`broker context`."""

from pathlib import Path
from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import local
from broker.client.command_line import Group
from broker.client.contexts import Context, read_contexts, write_contexts
from broker.client.credentials import looks_like_a_path, read_credentials
from broker.client.output import Output, Shown
from broker.client.stop import Misuse

_name = click.argument("name")


@local("list", "broker context list")
def list_(_: Output) -> Shown:
    """List the contexts."""
    contexts = read_contexts()
    data = [_described(name, one, name == contexts.current) for name, one in sorted(contexts.named.items())]
    rows = [[("*" if d["current"] else ""), *(str(d.get(f, "")) for f in ("name", *_FIELDS))] for d in data]
    nothing = "There is no context; `broker context set NAME --url URL --project PROJECT` makes one."
    return Shown(data=data, columns=("use", "name", *_FIELDS), rows=rows, whole=("name",), nothing=nothing)


@local("set", "broker context set local --url http://127.0.0.1:8085 --project demo")
@_name
@click.option("--url", metavar="URL", help="The server.")
@click.option("--project", metavar="PROJECT", help="The project of short names.")
@click.option("--credentials", metavar="FILE", help="A key file, a file with an API key, or such a key.")
@click.option("--ca-file", metavar="FILE", help="Certificates (PEM) of the authority of the server's own.")
def set_(_: Output, *, name: str, **options: str | None) -> Shown:
    """Make a context, or change what is named of it; the first one is in use at once."""
    contexts = read_contexts()
    held = contexts.named.get(name, Context())
    texts = {field: text for field, text in options.items() if text is not None}
    if not texts:
        raise Misuse("nothing to keep: give --url, --project, --credentials or --ca-file")
    if url := texts.get("url"):
        if not url.startswith(("http://", "https://")):
            raise Misuse(f"--url must be a URL such as http://127.0.0.1:8085, not {url[:200]!r}")
        if url.rstrip("/") != held.url.rstrip("/") and held.credentials and "credentials" not in texts:
            raise Misuse(
                "--url: the credentials that are kept are for another server; give --credentials too, or ''"
            )
    for field in ("credentials", "ca_file"):
        if texts.get(field) and looks_like_a_path(texts[field]):
            texts[field] = str(Path(texts[field]).expanduser().absolute())
    if texts.get("credentials"):
        read_credentials(texts["credentials"], "--credentials")
    made = Context(
        **{field: texts.get(field, getattr(held, field)) for field in ("url", "project", "credentials", "ca_file")}
    )
    contexts = contexts.with_one(name, made)
    write_contexts(contexts)
    in_use = "is in use" if contexts.current == name else f"`broker context use {name}` puts it to use"
    data = _described(name, made, contexts.current == name)
    return Shown(data=data, line=f"The context {name} is kept; {'it ' if in_use == 'is in use' else ''}{in_use}.")


@local("use", "broker context use local")
@_name
def use(_: Output, *, name: str) -> Shown:
    """Use a context from now on, where no option or variable says otherwise."""
    contexts = read_contexts()
    context = contexts.get(name)
    write_contexts(contexts.using(name))
    return Shown(data=_described(name, context, current=True), line=f"{name} is in use.")


@local("show", "broker context show", "broker context show local")
@click.argument("name", required=False)
def show(_: Output, *, name: str | None) -> Shown:
    """Show a context, or the one in use; an API key is not shown."""
    contexts = read_contexts()
    if not name and not contexts.current:
        raise Misuse("no context is in use; `broker context use NAME` changes that")
    name = name or contexts.current
    found = _described(name, contexts.get(name), contexts.current == name)
    return Shown(data=found, fields=found)


@local("delete", "broker context delete local")
@_name
def delete(_: Output, *, name: str) -> Shown:
    """Forget a context."""
    contexts = read_contexts()
    contexts.get(name)
    write_contexts(contexts.without(name))
    return Shown(data={}, line=f"Forgot {name}.")


_FIELDS = ("url", "project", "credentials")


def _described(name: str, context: Context, current: bool) -> Json:
    kept: dict[str, Any] = {"url": context.url, "project": context.project, "caFile": context.ca_file}
    is_path = looks_like_a_path(context.credentials)
    kept["credentials"] = context.credentials if is_path or not context.credentials else "an API key"
    return {"name": name, "current": current} | {field: text for field, text in kept.items() if text}


COMMANDS = Group(
    "context",
    help="Which server, project and credentials commands use, by names that you choose.",
    commands=[list_, set_, use, show, delete],
)
