"""The program `broker`."""


def main() -> int:
    """Run a command.  Returns the exit code."""
    from broker.cli.main import main as run  # here, because each child process imports this module again

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
