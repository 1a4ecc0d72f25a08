"""Which server a command calls, in which project, and as whom: options, then the environment, then a context."""

from dataclasses import dataclass
from typing import Any

import click

from broker.cli.client.api import DEFAULT_URL, Api
from broker.cli.client.contexts import Context, read_contexts
from broker.cli.client.credentials import Credentials, KeyFile, read_credentials
from broker.cli.stop import Misuse

OPTIONS = (
    click.Option(["--url"], metavar="URL", envvar="BROKER_URL", help=f"The server; default {DEFAULT_URL}."),
    click.Option(["--project"], metavar="PROJECT", envvar="BROKER_PROJECT", help="The project of short names."),
    click.Option(
        ["--credentials"],
        metavar="FILE",
        envvar="BROKER_CREDENTIALS",
        help="The key file of a service account, a file with an API key, or such a key.",
    ),
    click.Option(["--ca-file"], metavar="FILE", help="Certificates (PEM) of the authority of the server's own."),
    click.Option(
        ["--context"],
        metavar="NAME",
        envvar="BROKER_CONTEXT",
        help="What of these `broker context set` has kept; default: the one in use.",
    ),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """What was decided; `project` is "" where nothing says which."""

    url: str
    project: str
    credentials: Credentials
    ca_file: str | None

    def open(self) -> Api:
        """Raises Misuse."""
        return Api(self.url, self.credentials, self.ca_file)


def decide(
    *,
    url: str | None,
    project: str | None,
    credentials: str | None,
    ca_file: str | None,
    context: str | None,
    otherwise: tuple[str, str] = ("", ""),
) -> Connection:
    """`otherwise`: what shows who calls if nothing else does, and what it was given by.  Raises Misuse."""
    kept = _kept(context)
    # What a context shows is for its own server: another one that --url names must not get it.
    is_its_server = not url or url.rstrip("/") == kept.url.rstrip("/")
    shown: Credentials = None
    if credentials:
        shown = read_credentials(credentials, "--credentials")
    elif kept.credentials and is_its_server:
        shown = read_credentials(kept.credentials, "the context's credentials")
    elif otherwise[0]:
        shown = read_credentials(*otherwise)
    key = shown if isinstance(shown, KeyFile) else None
    return Connection(
        url=url or kept.url or (key.issuer if key else "") or DEFAULT_URL,
        project=(project or kept.project or (key.project if key else "") or "").removeprefix("projects/"),
        credentials=shown,
        ca_file=ca_file or (kept.ca_file if is_its_server else "") or None,
    )


def _kept(name: str | None) -> Context:
    contexts = read_contexts()
    if name:
        return contexts.get(name)
    return contexts.named.get(contexts.current, Context())


def full_name(given: str, collection: str, project: str) -> str:
    """`projects/p/topics/t` for `t`, and for itself.  Raises Misuse."""
    parts = given.split("/")
    if len(parts) == 4 and parts[0] == "projects" and parts[2] == collection and all(parts):
        return given
    if len(parts) > 1 or not given:
        raise Misuse(f"{given!r} must be an id, or a name such as projects/PROJECT/{collection}/ID")
    return f"{project_name(project)}/{collection}/{given}"


def project_name(project: str) -> str:
    """`projects/p`.  Raises Misuse where no project was given."""
    if not project:
        raise Misuse("no project: give --project, set BROKER_PROJECT, or keep one: `broker context set`")
    return f"projects/{project}"


def connection_from(given: dict[str, Any], otherwise: tuple[str, str] = ("", "")) -> Connection:
    """Takes the options of OPTIONS out of what a command was given; `otherwise` as in `decide`.  Raises Misuse."""
    names = ("url", "project", "credentials", "ca_file", "context")
    return decide(**{name: given.pop(name) for name in names}, otherwise=otherwise)
