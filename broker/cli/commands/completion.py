"""`broker completion`."""

import click
from click.shell_completion import get_completion_class

from broker.client.calling import local
from broker.client.output import Output, Shown

_VARIABLE = "_BROKER_COMPLETE"  # that click's part of the script asks this program by


@local("completion", 'eval "$(broker completion bash)"', "broker completion fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(_: Output, *, shell: str) -> Shown:
    """Print what makes a shell complete commands and options: evaluate it where the shell starts.

    In ~/.bashrc or ~/.zshrc a line as in the example; for fish write it to ~/.config/fish/completions/broker.fish.
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(click.get_current_context().find_root().command, {}, "broker", _VARIABLE).source()
    return Shown(data={"shell": shell, "script": script}, script=script)


COMMANDS = completion
