"""`broker`: the command line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from broker import settings
from broker.cli.stop import Stop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="broker", description="The Google Cloud Pub/Sub API on PostgreSQL.")
    parser.add_argument("--version", action="version", version=f"broker {version('pubsub-broker')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser("serve", help="serve the API; without a database URL on an embedded PostgreSQL")
    serving.add_argument("--host", help="address to listen on (127.0.0.1)")
    serving.add_argument("--port", type=int, help="port to listen on (8085)")
    serving.add_argument("--data-dir", dest="data_dir", help="directory of the embedded PostgreSQL")
    serving.add_argument("--workers", type=int, help="number of broker processes (1)")
    serving.add_argument(
        "--min-delivery-attempts",
        dest="min_delivery_attempts",
        type=int,
        help="smallest maxDeliveryAttempts of a dead-letter policy, 1 to 5 (5, as Google's)",
    )
    migrating = commands.add_parser("migrate", help="bring the schema of a PostgreSQL of your own up to date")
    for command in (serving, migrating):
        command.add_argument("--database-url", dest="database_url", help="postgresql://… (also DATABASE_URL)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.  Returns the exit code; a line on standard error says what was wrong."""
    options = vars(_parser().parse_args(arguments))
    command = _command(options.pop("command"))
    try:
        return command(settings.load(options))
    except (Stop, ValueError) as error:
        print("broker:", " ".join(str(error).split()), file=sys.stderr)  # noqa: T201  (one line, always)
        return 1


def _command(name: str) -> Callable[[settings.Settings], int]:
    """Each command imports what it needs: `migrate` much of what the parent of `serve` must not hold."""
    if name == "migrate":
        from broker.cli.migrate import migrate

        return migrate
    from broker.cli.serve import serve

    return serve
