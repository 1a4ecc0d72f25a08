"""Reading the command line: every setting is an option, and a mistake is said in one line."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import click

from broker.app.settings import fields
from broker.app.settings.find import SettingsInForce
from broker.app.settings.kinds import Several, Switch
from broker.cli import terminal
from broker.cli.stop import Misuse

_NEAR = 0.65  # of difflib's ratio: "akc" is like "ack" (0.67), "event" is not like "serve" (0.6)
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
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


@dataclass(frozen=True, slots=True)
class Commands:
    """A command or a group that is imported when it is asked for: what `module` has as COMMANDS.

    With `resource` it is made from that row of the module's RESOURCES.
    """

    module: str
    resource: str = ""

    def load(self) -> click.Command:
        module = import_module(self.module)
        if self.resource:
            made: click.Command = module.RESOURCES[self.resource].group(self.resource.rpartition(" ")[2])
            return made
        found: click.Command = module.COMMANDS
        return found


class Leaf(click.Command):
    """A command; a word too many is refused with the word."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("context_settings", {}).update(CONTEXT)
        super().__init__(*arguments, **options)
        self.allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            where = f"`{ctx.command_path}`"
            raise Misuse(
                f"{where} does not know what {ctx.args[0]!r} is for (`{ctx.command_path} --help` says more)"
            )
        return rest


class Group(click.Group):
    """A group of commands, some of which are imported when they are asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("context_settings", {}).update(CONTEXT)
        options["no_args_is_help"] = False
        super().__init__(*arguments, **options)
        self._elsewhere: dict[str, Commands] = {}

    def add_elsewhere(self, name: str, commands: Commands) -> None:
        """One that is imported when it is asked for."""
        self._elsewhere[name] = commands

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._elsewhere:
            return self._elsewhere[cmd_name].load()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *self._elsewhere]  # in their order

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = self.list_commands(ctx)
        if ctx.resilient_parsing:  # for a shell that completes what is typed
            return super().parse_args(ctx, args)
        if not args and ctx.parent is None:
            terminal.write_lines(ctx.get_help(), error=True)
            ctx.exit(2)
        if not args:
            raise Misuse(f"`{ctx.command_path}` needs a command: {', '.join(names)}")
        if not args[0].startswith("-") and args[0] not in names:
            group = ctx.command_path.partition(" ")[2]
            what = repr(f"{group} {args[0]}".strip())
            raise Misuse(f"there is no command {what}{guess(args[0], names)} ({', '.join(names)})")
        return super().parse_args(ctx, args)


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


def in_examples(examples: Sequence[str], rest: str) -> str:
    """What the help of a command ends with."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{rest}"


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


def misuse(error: click.UsageError) -> Misuse:
    """What click has against a command line, in the broker's words."""
    path = error.ctx.command_path if error.ctx is not None else "broker"
    more = f"(`{path} --help` says more)"
    match error:
        case click.NoSuchOption():
            known = _options(error.ctx)
            guessed = guess(error.option_name, known)
            return Misuse(f"`{path}` has no option {error.option_name}{guessed} (`{path} --help` lists them)")
        case click.BadOptionUsage() if "requires" in error.message:
            return Misuse(f"argument {error.option_name}: expected one argument {more}")
        case click.MissingParameter() if error.param is not None:
            name = (error.param.opts or [""])[0] if isinstance(error.param, click.Option) else error.param.metavar
            return Misuse(f"the following arguments are required: {name or error.param.name} {more}")
    return Misuse(f"{error.format_message().rstrip('.')} {more}")


def _options(context: click.Context | None) -> list[str]:
    parameters = [] if context is None else context.command.params
    return [name for parameter in parameters for name in parameter.opts if name.startswith("--")]


def guess(word: str, known: Iterable[str]) -> str:
    """Returns "; did you mean …?" for a name of `known` that is close to `word`, "" if none is."""
    near = difflib.get_close_matches(word, list(known), 1, _NEAR)
    return f"; did you mean {near[0]}?" if near else ""
