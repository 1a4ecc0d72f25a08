"""The table of nouns: each row becomes a group, and each command that is written by hand is reachable."""

from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from broker.cli.main import COMMANDS, command_line
from broker.cli.resources import RESOURCES
from broker.client.calling import ClientCommand
from broker.client.command_line import Commands
from tests.fixtures.broker import repository


def _modules() -> Iterator[str]:
    """Modules whose names end in `command`, and those in a package `commands`."""
    for path in sorted((repository() / "broker").rglob("[!_]*.py")):
        if path.stem.endswith("command") or path.parent.name == "commands":
            yield ".".join(path.relative_to(repository()).with_suffix("").parts)


def _reachable(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from _reachable(command) if isinstance(command, click.Group) else [command]


@pytest.mark.parametrize("module", list(_modules()))
def test_a_command_that_is_written_by_hand_can_be_called(module: str) -> None:
    written = [each for each in vars(import_module(module)).values() if isinstance(each, ClientCommand)]
    reachable = {id(command) for command in _reachable(command_line())}
    assert [each.name for each in written if id(each) not in reachable] == []


def test_each_row_is_a_group_of_the_command_line() -> None:
    used = {command.resource for command in COMMANDS.values() if isinstance(command, Commands)}
    assert used - {""} == set(RESOURCES)


@pytest.mark.parametrize("name", RESOURCES)
def test_the_commands_of_a_row_have_names_of_their_own(name: str) -> None:
    resource = RESOURCES[name]
    assert len(resource.group(name).commands) == len(resource.commands)
