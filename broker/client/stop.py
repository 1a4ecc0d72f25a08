"""The exception that ends a command with a message and an exit code."""


class Stop(Exception):
    """The command cannot go on; the message is one line for the operator, `exit_code` the process's."""

    exit_code = 1


class Misuse(Stop):
    """The command, its options or its settings make no sense; nothing was tried."""

    exit_code = 2
