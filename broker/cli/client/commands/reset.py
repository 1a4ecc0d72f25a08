"""`broker reset`."""

import sys

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.output import Shown
from broker.cli.command_line import Group

_OWN = Group("reset")


@calling(_OWN, "reset", "broker reset --project scratch --yes")
@click.option("--yes", is_flag=True, help="Do not ask; only a terminal is asked.")
def reset(session: Session, *, yes: bool) -> Shown:
    """Delete all that the project has, for good; needs this broker, started with --allow-reset."""
    project = session.project
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete all topics, subscriptions and so on of {project}, for good?", abort=True, err=True)
    answer = session.api.call("POST", f"{project}:reset")
    counts = ", ".join(f"{kind} {count}" for kind, count in answer["deleted"].items() if count)
    return Shown(data=answer, line=f"Reset {project}, which had {counts or 'nothing'}.")


COMMANDS = reset
