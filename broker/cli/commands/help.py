"""`broker help`."""

import click

from broker.cli.commands.help_topics import TOPICS
from broker.client.calling import local
from broker.client.command_line import guess
from broker.client.output import Output, Shown
from broker.client.stop import Misuse


@local("help", "broker help", "broker help sub ack", "broker help times")
@click.argument("words", metavar="[COMMAND|TOPIC]...", nargs=-1)
def help_(_: Output, *, words: tuple[str, ...]) -> Shown:
    """Show the help of a command, or of a topic: connection, times, output, exit-codes, names."""
    if len(words) == 1 and words[0] in TOPICS:
        text = TOPICS[words[0]].strip()
        return Shown(data={"topic": words[0], "help": text}, script=text)
    root = click.get_current_context().find_root()
    text = _help_of(root, words)
    return Shown(data={"command": " ".join(("broker", *words)), "help": text}, script=text)


def _help_of(context: click.Context, words: tuple[str, ...]) -> str:
    """Raises Misuse for what is neither a command nor a topic."""
    is_root = True
    for word in words:
        group = context.command
        found = group.get_command(context, word) if isinstance(group, click.Group) else None
        if found is None:
            known = [*group.list_commands(context)] if isinstance(group, click.Group) else []
            known += TOPICS if is_root else ()
            listed = f" ({', '.join(known)})" if known else f"; `{context.command_path}` has no commands of its own"
            raise Misuse(f"there is no help for {' '.join(words)!r}{guess(word, known)}{listed}")
        context = click.Context(found, info_name=word, parent=context)
        is_root = False
    return context.get_help()


COMMANDS = help_
