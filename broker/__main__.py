"""Runs the program `broker`."""

import sys


def main() -> int:
    """Run a command.  Returns the exit code."""
    # The imports are here, because each child process imports this module again.
    if sys.argv[1:2] != ["serve"] or not {"-h", "--help"}.isdisjoint(sys.argv):
        from broker.cli.main import main as run

        return run()
    from broker.cli.server.worker_template import worker_template

    with worker_template():
        from broker.cli.main import main as run

        return run()


if __name__ == "__main__":
    raise SystemExit(main())
