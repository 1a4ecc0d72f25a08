"""Fixtures of the commands for a server."""

from tests.cli.client.answering import server
from tests.cli.client.terminal import terminal

__all__ = ["server", "terminal"]
