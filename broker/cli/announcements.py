"""What a command tells whoever started it, on standard output; the log is on standard error."""

import os
import socket
import sys
from importlib.metadata import version
from pathlib import Path

from broker.domain.database_url import without_password
from broker.port import listener as listening
from broker.settings import Settings


def say(line: str) -> None:
    """Print a line at once.  Whoever has closed standard output does not want to know, and the broker goes on."""
    try:
        print(line, flush=True)  # noqa: T201
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end of the program fails for it


def say_what_runs(settings: Settings, *, postgres: int, schema: str, revision: str) -> None:
    """Of which version, on which database (without its password), at which schema, in how many processes."""
    where = (
        without_password(settings.database_url)
        if settings.database_url
        else f"in {Path(settings.data_dir).absolute()} (embedded)"
    )
    processes = "1 process" if settings.workers == 1 else f"{settings.workers} processes"
    say(
        f"broker {version('pubsub-broker')}, {processes}, on PostgreSQL {postgres} {where}, "
        f"schema {schema} at {revision}"
    )


def say_ready(listener: socket.socket) -> None:
    """Where it listens, and what Google's clients are to be told."""
    say(f"Ready: {listening.url(listener)}")
    say(f"    export PUBSUB_EMULATOR_HOST={listening.emulator_host(listener)}")
