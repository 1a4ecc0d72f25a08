"""Fixtures of the commands for a server."""

from tests.cli.client.answering import server
from tests.cli.client.methods import calls
from tests.cli.client.terminal import terminal

__all__ = ["calls", "server", "terminal"]
