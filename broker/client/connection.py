"""Determines which server a command calls, in which project and with which credentials, by one rule for all
commands.

Each field (server, project, credentials, authority) has the first value given by

    options ► environment variables ► the context ► the credential ► the default, which only the server has

A context that --context names comes before the variables, because it is an option.  The credential is the key file
that GOOGLE_APPLICATION_CREDENTIALS names, if none of these gives credentials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from click.core import ParameterSource

from broker.client.api import DEFAULT_URL, Api
from broker.client.contexts import Context, read_contexts
from broker.client.credentials import Credentials, KeyFile, read_credentials
from broker.client.google_credentials import VARIABLE, GoogleCredentials, read_google_credentials
from broker.client.stop import Misuse

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
    click.Option(["--google-credentials"], metavar="FILE", envvar=VARIABLE, hidden=True),
)
_FIELDS = ("url", "project", "credentials", "ca_file")

Layer = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Connection:
    """The server that was found, and how to call it.

    `project` is "" if nothing names one.  `notice` is what the user should know of how the server was found
    ("": nothing).
    """

    url: str
    project: str
    credentials: Credentials
    ca_file: str | None
    notice: str = ""

    def open(self) -> Api:
        """Raises Misuse."""
        return Api(self.url, self.credentials, self.ca_file)


def connection_from(given: dict[str, Any]) -> Connection:
    """Takes the options of OPTIONS out of what a command was given.  Raises Misuse."""
    source = click.get_current_context().get_parameter_source
    variables = {name: given[name] for name in _FIELDS if source(name) is ParameterSource.ENVIRONMENT}
    options = {name: given[name] for name in _FIELDS if name not in variables}
    is_named_by_option = source("context") is ParameterSource.COMMANDLINE
    context, google = _read_context(given.pop("context")), given.pop("google_credentials")
    for name in _FIELDS:
        del given[name]
    layers = [options, context, variables] if is_named_by_option else [options, variables, context]
    return find_connection(layers, context, google or "")


def find_connection(layers: Sequence[Layer], context: Layer, google_path: str) -> Connection:
    """Applies the rule of this module: `layers` begins with the one that goes first, and has the context's.

    Raises Misuse.
    """
    url = _first("url", layers)
    if url.rstrip("/") != (context["url"] or "").rstrip("/"):
        # The credentials and the authority of a context are for its own server only.
        public = dict(context) | {"credentials": None, "ca_file": None}
        layers = [public if layer is context else layer for layer in layers]
    credentials = _read_credentials(_first("credentials", layers), context)
    google = read_google_credentials(google_path, needed=credentials is None)
    if credentials is None:
        credentials = google.key
    key = credentials if isinstance(credentials, KeyFile) else None
    url = url or (key.server if key else "")
    return Connection(
        url=url or DEFAULT_URL,
        project=(_first("project", layers) or (key.project if key else "") or "").removeprefix("projects/"),
        credentials=credentials,
        ca_file=_first("ca_file", layers) or None,
        notice="" if url else _notice_of_default(credentials, google),
    )


def _first(name: str, layers: Sequence[Layer]) -> str:
    return next((text for layer in layers if (text := layer.get(name))), "")


def _read_context(name: str | None) -> Layer:
    """The fields of the context of this name, or of the one in use.  Raises Misuse."""
    contexts = read_contexts()
    return asdict(contexts.get(name) if name else contexts.named.get(contexts.current, Context()))


def _read_credentials(given: str, context: Layer) -> Credentials:
    """Raises Misuse."""
    if not given:
        return None
    is_kept = given == context["credentials"]
    return read_credentials(given, "the context's credentials" if is_kept else "--credentials")


def _notice_of_default(credentials: Credentials, google: GoogleCredentials) -> str:
    """Says that the default server is called although a credential names another one."""
    if isinstance(credentials, KeyFile) and not credentials.server:
        named = f"{credentials.option} names {credentials.token_uri}, which is no broker"
    elif google.key is not None:
        named = f"{VARIABLE} names {google.key.server}, but the API key that was given names no server"
    elif google.foreign and credentials is None:
        named = f"{VARIABLE} is {google.foreign}, which no broker takes: no credentials are sent"
    else:
        return ""
    return f"calling {DEFAULT_URL}, the default; {named} (--url, BROKER_URL or a context name the server)"


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
