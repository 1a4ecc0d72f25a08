"""Commands that call a server of the API: their common options, examples, and exit codes."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from broker.client import terminal
from broker.client.api import Api
from broker.client.command_line import Leaf, in_examples
from broker.client.connection import OPTIONS, connection_from, full_name, project_name
from broker.client.exit_codes import DONE, IN_WORDS, INTERRUPTED
from broker.client.output import Output, Shown
from broker.client.stop import Misuse

AS_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs.")


@dataclass(frozen=True, slots=True)
class Session:
    """The server that a command calls, the project that short names are of, and where it prints."""

    api: Api
    out: Output
    short_project: str

    @property
    def project(self) -> str:
        """`projects/p`.  Raises Misuse."""
        return project_name(self.short_project)

    def topic(self, given: str) -> str:
        return full_name(given, "topics", self.short_project)

    def subscription(self, given: str) -> str:
        return full_name(given, "subscriptions", self.short_project)

    def snapshot(self, given: str) -> str:
        return full_name(given, "snapshots", self.short_project)

    def schema(self, given: str) -> str:
        """The full name of a schema, or, with @, of one of its revisions."""
        return full_name(given, "schemas", self.short_project)

    def operation(self, given: str) -> str:
        return full_name(given, "operations", self.short_project)

    def schedule(self, given: str) -> str:
        return full_name(given, "schedules", self.short_project)


class ClientCommand(Leaf):
    """A command with examples, each of which a test runs."""

    examples: Sequence[str] = ()


def calling(name: str, *examples: str) -> Callable[[Callable[..., Shown | int | None]], click.Command]:
    """Makes a command that calls a server.

    The function gets a Session and the command's own options, which click's decorators give it; its docstring is
    the help.  It returns what is to be shown, or its exit code.
    """

    def decorate(function: Callable[..., Shown | int | None]) -> click.Command:
        return server_command(
            name, function, params=params_of(function), help_=inspect.getdoc(function) or "", examples=examples
        )

    return decorate


def server_command(
    name: str,
    function: Callable[..., Shown | int | None],
    *,
    params: Sequence[click.Parameter],
    help_: str,
    examples: Sequence[str],
) -> click.Command:
    """Makes a command that calls a server, with the options that all of these have."""

    def run(as_json: bool, **given: Any) -> int:
        return call_server(function, Output(as_json=as_json), given)

    return _client_command(name, run, params=[*params, *OPTIONS, AS_JSON], help_=help_, examples=examples)


def call_server(function: Callable[..., Shown | int | None], out: Output, given: dict[str, Any]) -> int:
    """Run a command that was given these options.  Returns the exit code.  Raises Stop."""
    connection = connection_from(given)
    if connection.notice:
        terminal.write_line(f"broker: {connection.notice}", error=True)
    with connection.open() as api:
        return finish(out, lambda: function(Session(api, out, connection.project), **given))


def local(name: str, *examples: str) -> Callable[[Callable[..., Shown | int | None]], click.Command]:
    """Makes a command that calls no server; its function gets an Output."""

    def decorate(function: Callable[..., Shown | int | None]) -> click.Command:
        def run(as_json: bool, **given: Any) -> int:
            out = Output(as_json=as_json)
            return finish(out, lambda: function(out, **given))

        params, help_ = [*params_of(function), AS_JSON], inspect.getdoc(function) or ""
        return _client_command(name, run, params=params, help_=help_, examples=examples)

    return decorate


def params_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """The parameters that click's decorators gave a function, in the order of the decorators."""
    return list(reversed(getattr(function, "__click_params__", [])))


def _client_command(
    name: str, run: Callable[..., int], *, params: Sequence[click.Parameter], help_: str, examples: Sequence[str]
) -> ClientCommand:
    epilog = in_examples(examples, IN_WORDS)
    command = ClientCommand(name, params=list(params), callback=run, help=help_, epilog=epilog)
    command.examples = examples
    return command


def finish(out: Output, work: Callable[[], Shown | int | None]) -> int:
    """Do it, and print what it brought.  Returns the exit code.  Raises Stop."""
    try:
        answer = work()
        if isinstance(answer, int):
            return answer
        if answer is not None:
            out.show(answer)
        terminal.flush()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except UnicodeEncodeError as error:  # bytes of the command line that are no text, as Python has them
        raise Misuse(f"{error.object[:200]!r} is not text in UTF-8, which names and attributes must be") from None
    except BrokenPipeError:  # whoever read it, such as `head`, has had enough
        terminal.discard_output()
    return DONE
