"""The command of `broker topic` that tests a filter."""

from typing import Any

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.filter_test import FILTER_OPTIONS, show_filter_test
from broker.cli.client.output import Shown
from broker.cli.command_line import Group

COMMANDS = Group("topic")


@calling(COMMANDS, "test-filter", "broker topic test-filter orders 'attributes.env = \"prod\"'")
@click.argument("topic")
@click.argument("filter_text", metavar="FILTER")
@FILTER_OPTIONS
def test_filter(session: Session, *, topic: str, filter_text: str, **options: Any) -> Shown:
    """Show which retained messages of a topic FILTER matches, before a subscription has it; needs this broker."""
    return show_filter_test(session, session.topic(topic), filter_text, **options)
