"""Reading the command line: every setting is an option, and a mistake is said in one line."""

import argparse
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from broker import settings
from broker.cli.stop import Misuse
from broker.setting_values import Switch
from broker.settings import SettingsInForce

_ALONE: Mapping[str, Any] = {"nargs": "?", "const": "true"}  # an option that may stand without a value
_NEAR = 0.6  # of difflib's ratio; a guess too many does no harm here


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`run` gets the settings and the command's own `flags`, by name; it returns the exit code, and raises Stop.

    It imports what it needs only when it runs: `migrate` much of what the parent of `serve` must not hold.
    """

    summary: str
    settings: Sequence[str]
    run: Callable[[SettingsInForce, Mapping[str, Any]], int]
    flags: Mapping[str, str] = field(default_factory=dict)  # "move-schema": what that does
    values: Mapping[str, str] = field(default_factory=dict)  # "key-file": what that names; each must be given
    program: str = ""  # the one that runs if none is named, for a command that runs another program


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misuse(f"{message} (`{self.prog} --help` says more)")


def make_parser(commands: Mapping[str, Command], *, version: str) -> argparse.ArgumentParser:
    """The parser of `broker …`.  Raises Misuse where argparse would print its usage and exit."""
    parser = _Parser(prog="broker", description="The Google Cloud Pub/Sub API on PostgreSQL.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=version)
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        own = parsers.add_parser(
            name,
            usage=f"broker {name} [OPTION VALUE] …{' [PROGRAM [ARGUMENT …]]' if command.program else ''}",
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog="An option goes before its environment variable. docs/settings.md says more of each setting.",
            allow_abbrev=False,
        )
        for setting in command.settings:
            own.add_argument(
                settings.option(setting),
                dest=setting,
                metavar=settings.kind(setting).placeholder,
                **_ALONE if isinstance(settings.kind(setting), Switch) else {},
                help=_help(setting),
            )
        if command.program:
            meaning = f"the program, and what follows is its own; default {command.program}"
            own.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER, help=meaning)
        for value, meaning in command.values.items():
            own.add_argument(f"--{value}", dest=value, metavar="FILE", required=True, help=meaning)
        for flag, meaning in command.flags.items():
            own.add_argument(f"--{flag}", dest=flag, action="store_true", help=meaning)
    return parser


def _help(name: str) -> str:
    """Argparse takes % for a format."""
    default = settings.default(name)
    text = (
        f"{settings.meaning(name)} Must be {settings.kind(name).allowed}"
        f"{f'; default {default}' if default else ''} [{settings.variable(name)}]"
    )
    return text.replace("%", "%%")


def parse(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command], arguments: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """The command's name, and its options by name (None: not given).  Raises Misuse."""
    if " ".join(arguments[:2]) in commands:  # a command of two words
        arguments = [" ".join(arguments[:2]), *arguments[2:]]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise Misuse(
            f"there is no command {arguments[0]!r}{_guess(arguments[0], commands)} ({', '.join(commands)})"
        )
    options, rest = parser.parse_known_args(arguments)
    given = vars(options)
    name = str(given.pop("command"))
    for unknown in rest:
        if not unknown.startswith("-"):
            raise Misuse(
                f"`broker {name}` does not know what {unknown!r} is for (`broker {name} --help` says more)"
            )
        known = [settings.option(setting) for setting in commands[name].settings]
        known += [f"--{own}" for own in (*commands[name].flags, *commands[name].values)]
        word = unknown.partition("=")[0]
        raise Misuse(
            f"`broker {name}` has no option {word}{_guess(word, known)} (`broker {name} --help` lists them)"
        )
    return name, given


def _guess(word: str, known: Sequence[str] | Mapping[str, Command]) -> str:
    near = difflib.get_close_matches(word, known, 1, _NEAR)
    return f"; did you mean {near[0]}?" if near else ""
