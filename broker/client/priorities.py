"""Parses the priority of a message as users write it."""

from collections.abc import Callable, Iterator
from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session
from broker.client.delays import check_switched_on
from broker.client.stop import Misuse
from broker.client.words import duration_text

_ATTRIBUTE = "broker-priority"
_MOST_LEVELS = 10

PRIORITY = click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(0, _MOST_LEVELS - 1),
    help="How urgent each message is: 0 is the most urgent level.",
)
_OPTIONS = (
    click.option(
        "--priorities",
        "levels",
        metavar="N",
        type=click.IntRange(2, _MOST_LEVELS),
        help="Levels of urgency: what is more urgent goes first.",
    ),
    click.option(
        "--priority-age", "age", metavar="DURATION", help="What has waited for so long takes turns with it: 60s."
    ),
    click.option(
        "--priority-weights", "weights", metavar="N,N,…", help="Or levels share by weights, a number for each."
    ),
)


def priorities_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a topic."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def priorities_of(levels: int | None, age: str | None, weights: str | None) -> int | Json | None:
    """Returns the priorities of a topic's extensions, in full: options that are not given are reset.

    Raises Misuse.
    """
    shares = _shares(weights)
    if shares and levels not in (None, len(shares)):
        raise Misuse(f"--priority-weights has {len(shares)} weights, and --priorities says {levels} levels")
    levels = levels or len(shares) or None
    if levels is None and age:
        raise Misuse("--priority-age needs --priorities N: how many levels the topic has")
    if levels is None or not (age or shares):
        return levels
    return {"levels": levels, "age": duration_text(age, "--priority-age") if age else None, "weights": shares}


def _shares(weights: str | None) -> list[int]:
    try:
        return [int(weight) for weight in weights.split(",")] if weights else []
    except ValueError:
        raise Misuse(f"--priority-weights must be numbers such as 8,3,1, not {weights!r}") from None


def urgency_of(priority: Any, where: str) -> dict[str, str]:
    """Returns the attribute with a message's priority.  Raises Misuse."""
    if str(priority) not in [str(level) for level in range(_MOST_LEVELS)]:
        raise Misuse(f"{where} has the priority {priority!r}: it is a number from 0, the most urgent level, to 9")
    return {_ATTRIBUTE: str(priority)}


def prioritized(session: Session, topic: str, messages: Iterator[Json]) -> Iterator[Json]:
    """Messages as the API has them, of those that may have a `priority`.  The topic is asked before the first one
    that has, and Stop raised if it would take that for an attribute like any.
    """
    checked = False
    for message in messages:
        if "priority" not in message:
            yield message
            continue
        if not checked:
            check_prioritized(session, topic)
            checked = True
        attributes = message.get("attributes", {}) | urgency_of(message["priority"], "a message")
        yield {name: value for name, value in message.items() if name != "priority"} | {"attributes": attributes}


def check_prioritized(session: Session, topic: str) -> None:
    """Raises Stop for a topic that would take it for an attribute like any, and deliver it in its turn."""
    without, with_it = "deliver it in its turn", "lets what is urgent go first"
    check_switched_on(session, topic, "priorities", without, with_it, option="--priorities 3")
