"""The command line with all commands; the commands that read settings have an option for each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from broker.app.settings import fields
from broker.app.settings.find import SettingsInForce
from broker.app.settings.kinds import Several, Switch
from broker.client import terminal
from broker.client.command_line import Commands, Group, Leaf, in_examples

_EPILOG = "An option goes before its environment variable. `broker docs settings` says more of each setting."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`run` gets the settings and the command's own options, by name; it returns the exit code, and raises Stop.

    It imports what it needs only when it runs: `migrate` much of what the parent of `serve` must not hold.
    """

    summary: str
    settings: Sequence[str]
    run: Callable[[SettingsInForce, Mapping[str, Any]], int]
    flags: Mapping[str, str] = field(default_factory=dict)  # "distribute": what that does
    values: Mapping[str, str] = field(default_factory=dict)  # "key_file": what that names; each must be given
    words: Sequence[str] = ()  # that must be given, without the name of an option
    texts: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # "functions": what if not given, and what it is
    program: str = ""  # the one that runs if none is named, for a command that runs another program
    examples: Sequence[str] = ()  # a test runs each


class Root(Group):
    """`broker`, whose help names its many commands by what they are for, on one screen."""

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(what, ", ".join(names)) for what, names in self.sections.items()])


def _version_option(version: Callable[[], str]) -> click.Option:
    """Makes `--version`, which determines the version only when it is given."""

    def show(context: click.Context, _: click.Parameter, is_given: bool) -> None:
        if is_given and not context.resilient_parsing:
            terminal.write_line(f"broker {version()}")
            context.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )


def make_cli(
    commands: Mapping[str, Command | Commands],
    sections: Mapping[str, Sequence[str]],
    *,
    version: Callable[[], str],
    run: Callable[[Command, Mapping[str, Any]], int],
) -> click.Group:
    """`broker …`.  A command of two words is in a group of the first.  `run(command, options)` runs one."""
    root = Root(
        "broker",
        help="The Google Cloud Pub/Sub API on PostgreSQL: a broker, and commands for any server of that API.",
        epilog="`broker COMMAND --help` says more of each, with examples. `broker docs command-line` has all.",
    )
    root.sections = sections
    root.params.append(_version_option(version))
    for name, command in commands.items():
        group, _, last = name.rpartition(" ")
        parent: Group = root
        if group:
            if group not in root.commands:
                root.add_command(Group(group, help=_GROUPS[group]))
            within = root.commands[group]
            assert isinstance(within, Group)
            parent = within
        if isinstance(command, Commands):
            parent.add_elsewhere(last, command)
        else:
            parent.add_command(_leaf(last, command, run))
    return root


_GROUPS = {
    "auth": "Who may call: the first key, and what a running broker has of accounts, keys and policies.",
    "secrets": "What is encrypted in the database.",
    "backup": "What a database needs that was restored.",
    "sql": "Roles of PostgreSQL that publish and acknowledge in their own transactions.",
}


def _leaf(name: str, command: Command, run: Callable[[Command, Mapping[str, Any]], int]) -> click.Command:
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    parameters: list[click.Parameter] = [_setting(setting) for setting in command.settings]
    parameters += [
        click.Option([_option(value), value], metavar="FILE", required=True, help=meaning)
        for value, meaning in command.values.items()
    ]
    parameters += [
        click.Option([_option(flag), flag], is_flag=True, help=meaning) for flag, meaning in command.flags.items()
    ]
    parameters += [
        click.Option([_option(text), text], metavar=text.upper(), default=default, show_default=True, help=meaning)
        for text, (default, meaning) in command.texts.items()
    ]
    parameters += [click.Argument([word], metavar=word.upper()) for word in command.words]
    if command.program:
        parameters.append(click.Argument(["program"], nargs=-1, type=click.UNPROCESSED))
    leaf = Leaf(
        name,
        help=summary,
        short_help=command.summary,
        epilog=in_examples(command.examples, _EPILOG),
        params=parameters,
        callback=lambda **given: run(command, given),
    )
    if command.program:  # what follows it is its own
        leaf.allow_interspersed_args = False
        leaf.options_metavar = "[OPTIONS] [PROGRAM [ARGUMENT …]]"
    return leaf


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _setting(name: str) -> click.Option:
    kind, default = fields.kind(name), fields.default(name)
    text = (
        f"{fields.meaning(name)} Must be {kind.allowed}"
        f"{f'; default {default}' if default else ''} [{fields.variable(name)}]"
    )
    alone: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if isinstance(kind, Switch) else {}
    if isinstance(kind, Several):
        alone = {"multiple": True, "callback": lambda _context, _option, given: ",".join(given) if given else None}
    return click.Option([fields.option(name), name], metavar=kind.placeholder, help=text, **alone)
