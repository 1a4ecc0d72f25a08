"""Commands and groups of commands; each mistake on the command line is reported in one line."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from broker.client import terminal
from broker.client.stop import Misuse

_NEAR = 0.65  # of difflib's ratio: "akc" is like "ack" (0.67), "event" is not like "serve" (0.6)
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


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
        """Adds a command that is imported when it is first used."""
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


def in_examples(examples: Sequence[str], rest: str) -> str:
    """The end of the help of a command."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{rest}"


def misuse(error: click.UsageError) -> Misuse:
    """Translates an error of click into the broker's words."""
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
