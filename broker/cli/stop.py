"""How a command gives up."""


class Stop(Exception):
    """The command cannot go on; the message is one line for the operator."""
