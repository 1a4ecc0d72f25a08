"""The commands of `broker auth`: as all that call a server, also with the names that their options had first."""

from collections.abc import Callable
from typing import Any

import click

from broker.cli.client.calling import AS_JSON, call_server, client_command
from broker.cli.client.connection import OPTIONS
from broker.cli.client.output import Output, Shown
from broker.cli.command_line import Group

_FIRST = (
    click.Option(["--endpoint"], metavar="URL", hidden=True),
    click.Option(["--key-file"], metavar="FILE", hidden=True),
    click.Option(["--format", "output"], type=click.Choice(["table", "json"]), default="table", hidden=True),
)


def calling(group: Group, name: str, *examples: str) -> Callable[[Callable[..., Shown]], click.Command]:
    """A command of `group`, as broker/cli/client/calling.py has them."""

    def decorate(function: Callable[..., Shown]) -> click.Command:
        def run(as_json: bool, output: str, endpoint: str | None, key_file: str | None, **given: Any) -> int:
            given["url"] = given["url"] or endpoint
            given["credentials"] = given["credentials"] or key_file
            return call_server(function, Output(as_json=as_json or output == "json"), given)

        own = reversed(getattr(function, "__click_params__", []))
        command = client_command(name, function, [*own, *OPTIONS, AS_JSON, *_FIRST], run, examples)
        group.add_command(command)
        return command

    return decorate
