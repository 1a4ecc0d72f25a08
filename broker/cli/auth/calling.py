"""Commands that call a running broker: the options that all of them have, and how they print."""

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from broker.cli.announcements import say
from broker.cli.auth.api import DEFAULT_ENDPOINT, Api, Json
from broker.cli.command_line import Group, Leaf

_ENDLESS = 100_000  # columns of what is no terminal
KEY_FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"  # as Google's libraries have it


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command found: as it is for JSON, and for people the `columns` of its `rows`.

    `line` is said in place of a table.
    """

    data: Any
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    line: str = ""


_OPTIONS = (
    click.Option(
        ["--endpoint"], metavar="URL", help=f"The broker; default: the key file's, or {DEFAULT_ENDPOINT}."
    ),
    click.Option(
        ["--key-file"],
        metavar="FILE",
        envvar=KEY_FILE_VARIABLE,
        show_envvar=True,
        help="The key file of a service account that may do this.",
    ),
    click.Option(["--ca-file"], metavar="FILE", help="Certificates (PEM) of the authority of the broker's own."),
    click.Option(
        ["--format", "output"],
        type=click.Choice(["table", "json"]),
        default="table",
        help="How to print; table is for people, json for programs.",
    ),
)


def calling(group: Group, name: str) -> Callable[[Callable[..., Shown]], click.Command]:
    """A command of `group`.

    The function gets the broker and the command's own options, which click's decorators give it; its docstring is
    the help.
    """

    def decorate(function: Callable[..., Shown]) -> click.Command:
        def run(endpoint: str | None, key_file: str | None, ca_file: str | None, output: str, **own: Any) -> int:
            with Api(endpoint, key_file, ca_file) as api:
                show(function(api, **own), output)
            return 0

        own = reversed(getattr(function, "__click_params__", []))
        command = Leaf(name, params=[*own, *_OPTIONS], callback=run, help=inspect.getdoc(function))
        group.add_command(command)
        return command

    return decorate


def show(found: Shown, output: str) -> None:
    """Print it on standard output."""
    if output == "json":
        say(json.dumps(found.data, indent=2, ensure_ascii=False))
    elif found.line:
        say(found.line)
    else:
        _print_table(found)


def _print_table(found: Shown) -> None:
    from rich.console import Console
    from rich.table import Table

    # A program cuts lines better than it joins them.
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _ENDLESS)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in found.columns:
        table.add_column(column.upper(), overflow="fold")
    for row in found.rows:
        table.add_row(*row)
    console.print(table)


def texts(found: Sequence[Json], *fields: str) -> list[list[str]]:
    """Rows of a table."""
    return [[_text(one.get(field)) for field in fields] for one in found]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
