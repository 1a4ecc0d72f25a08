"""The commands of `broker auth`: as all that call a server, also with the names that their options had first."""

from collections.abc import Callable
from typing import Any

import click

from broker.cli.client.calling import AS_JSON, Session, client_command, finish
from broker.cli.client.connection import OPTIONS, connection_from
from broker.cli.client.output import Output, Shown
from broker.cli.command_line import Group

KEY_FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"  # as Google's libraries have it

_FIRST = (
    click.Option(["--endpoint"], metavar="URL", hidden=True),
    click.Option(["--key-file"], metavar="FILE", hidden=True),
    click.Option(["--google-key-file"], metavar="FILE", envvar=KEY_FILE_VARIABLE, hidden=True),
    click.Option(["--format", "output"], type=click.Choice(["table", "json"]), default="table", hidden=True),
)


def calling(group: Group, name: str, *examples: str) -> Callable[[Callable[..., Shown]], click.Command]:
    """A command of `group`, as broker/cli/client/calling.py has them.

    Where nothing else shows who calls, what GOOGLE_APPLICATION_CREDENTIALS names does.
    """

    def decorate(function: Callable[..., Shown]) -> click.Command:
        def run(as_json: bool, output: str, **given: Any) -> int:
            endpoint, key_file = given.pop("endpoint"), given.pop("key_file")
            otherwise = given.pop("google_key_file") or "", KEY_FILE_VARIABLE
            given["url"] = given["url"] or endpoint
            given["credentials"] = key_file or given["credentials"]
            connection = connection_from(given, otherwise)
            out = Output(as_json=as_json or output == "json")
            with connection.open() as api:
                return finish(out, lambda: function(Session(api, out, connection.project), **given))

        own = reversed(getattr(function, "__click_params__", []))
        command = client_command(name, function, [*own, *OPTIONS, AS_JSON, *_FIRST], run, examples)
        group.add_command(command)
        return command

    return decorate
