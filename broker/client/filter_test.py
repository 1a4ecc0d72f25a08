"""Shows which retained messages of a topic or subscription a filter matches, without delivering any."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.client.api import Json
from broker.client.calling import Session
from broker.client.messages import message_row, shown_messages
from broker.client.output import Shown

F = TypeVar("F", bound=Callable[..., Any])

_MOST_PAGES = 100  # of up to 10,000 messages each


def FILTER_OPTIONS(function: F) -> F:  # noqa: N802  (is applied as a decorator, like the options of other modules)
    function = click.option(
        "--max", "most", metavar="N", type=click.IntRange(1, 1000), default=20, show_default=True
    )(function)
    return click.option("--data/--no-data", "with_data", default=True, help="With the bodies of what matches.")(
        function
    )


def show_filter_test(session: Session, name: str, filter_text: str, *, most: int, with_data: bool) -> Shown:
    """The newest messages that match, and on standard error how many of how many match."""
    found: list[Json] = []
    compared, token = 0, ""
    for _ in range(_MOST_PAGES):
        body: Json = {"filter": filter_text, "pageSize": most - len(found), "includeData": with_data}
        answer = session.api.call("POST", f"{name}:testFilter", body | ({"pageToken": token} if token else {}))
        found += answer.get("matchedMessages", [])
        compared += answer["scannedMessageCount"]
        token = answer.get("nextPageToken", "")
        if not token or len(found) >= most:
            break
    more = "; there are more" if token else ""
    session.out.note(f"{len(found):,} of the newest {compared:,} messages match{more}.")
    return shown_messages(found, [message_row(one) for one in found], nothing="")
