"""`broker top`."""

import time

import click

from broker.client import terminal
from broker.client.api import Json, NotReached, Refused
from broker.client.calling import Session, calling
from broker.client.exit_codes import NOT_REACHED
from broker.client.output import Shown
from broker.client.words import seconds_of
from broker.features.lag_board.command import COLUMNS, MINOR, lag_rows

_ROWS = 18  # of a terminal of 24 lines, where verdicts may take two


@calling("top", "broker top --every 200ms --max 2")
@click.option("--every", metavar="DURATION", default="2s", show_default=True, help="How often to look.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="End after so many looks.")
def top(session: Session, *, every: str, most: int | None) -> int:
    """Show all subscriptions, the one furthest behind first, until Ctrl-C; needs this broker.

    While the server is away or overloaded the last figures stay, and standard error says so.

    PER SECOND is how fast the backlog has grown or shrunk since the last refresh.
    """
    pause = max(seconds_of(every, "--every"), 0.1)
    path, rounds = f"{session.project}/lag", 0
    before: dict[str, int] = {}
    read_at = time.monotonic()
    while True:
        try:
            found = session.api.call("GET", path, params={"pageSize": _ROWS, "fresh": "true"}).get(
                "subscriptions", []
            )
        except (NotReached, Refused) as error:
            if rounds == 0 or error.exit_code != NOT_REACHED:
                raise
            terminal.write_line(f"broker: could not be read, and is tried again: {error}", error=True)
        else:
            now = time.monotonic()
            rates = _rates(found, before, now - read_at)
            before, read_at = {one["subscription"]: one.get("undeliveredMessages", 0) for one in found}, now
            _show(session, found, rates)
        rounds += 1
        if rounds == most:
            return 0
        time.sleep(pause)


def _rates(found: list[Json], before: dict[str, int], seconds: float) -> list[float | None]:
    """Returns how fast the backlog of each subscription grows, in messages a second; None at the first check."""
    rates: list[float | None] = []
    for one in found:
        held = before.get(one["subscription"])
        rates.append(None if held is None else (one.get("undeliveredMessages", 0) - held) / max(seconds, 0.001))
    return rates


def _show(session: Session, found: list[Json], rates: list[float | None]) -> None:
    if session.out.as_json:
        lines = [
            one | ({} if rate is None else {"perSecond": round(rate, 1)})
            for one, rate in zip(found, rates, strict=True)
        ]
        session.out.row({"subscriptions": lines}, "")
        return
    if session.out.is_terminal:
        terminal.clear_screen()
    rows = [
        [*row[:4], "" if rate is None else f"{rate:+.0f}", *row[4:]]
        for row, rate in zip(lag_rows(found), rates, strict=True)
    ]
    columns = (*COLUMNS[:4], "per second", *COLUMNS[4:])
    nothing = f"{session.project} has no subscription."
    session.out.show(
        Shown(data=found, columns=columns, rows=rows, whole=columns[1:-1], minor=MINOR, nothing=nothing)
    )


COMMANDS = top
