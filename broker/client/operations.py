"""Shows long-running operations: a progress bar, and the result."""

from collections.abc import Mapping
from typing import Any

from broker.client import terminal
from broker.client.api import Api, Json
from broker.client.exit_codes import DONE, REFUSED
from broker.client.output import Output, Shown
from broker.client.words import leaf

_BAR = 30  # columns
_CHECK_SECONDS = 1
_REACHED = 0.8  # of the rate that was asked for


def wait_for(api: Api, out: Output, operation: Json) -> Json:
    """Waits until an operation has ended.  Ctrl-C ends the wait, not the operation."""
    try:
        while not operation.get("done"):
            _show_bar(out, operation)
            operation = wait_once(api, operation["name"])
    finally:
        if shows_bar(out):
            terminal.erase_status()
    return operation


def wait_once(api: Api, name: str) -> Json:
    """The operation of this name once it has ended, or after a second."""
    return api.call("POST", f"{name}:wait", {"timeout": f"{_CHECK_SECONDS}s"})


def shows_bar(out: Output) -> bool:
    return terminal.is_terminal(error=True) and not out.as_json


def _show_bar(out: Output, operation: Json) -> None:
    if not shows_bar(out):
        return
    metadata = operation["metadata"]
    done, total = int(metadata.get("done", 0)), int(metadata.get("total", 0))
    full = _BAR * min(done, total) // total if total else 0
    rate = f"{metadata.get('ratePerSecond', 0):.0f} a second"
    terminal.write_status(f"[{'#' * full}{'.' * (_BAR - full)}] {done} of {total}, {rate}")


def finished(out: Output, operation: Json) -> int:
    """Says what came of it.  Returns the exit code."""
    out.show(Shown(data=operation, line=in_words(operation)))
    return REFUSED if "error" in operation else DONE


def _pace(metadata: Mapping[str, Any]) -> str:
    """The rate, where one was asked for that was not reached."""
    most, rate, done = (float(metadata.get(name, 0)) for name in ("maxMessagesPerSecond", "ratePerSecond", "done"))
    if done <= most or rate >= _REACHED * most:  # of less than a second's worth a rate says nothing
        return ""
    return f"; it went at {rate:,.0f} messages a second, and {most:,.0f} were allowed"


def in_words(operation: Mapping[str, Any]) -> str:
    metadata = operation["metadata"]
    what = f"The {metadata['verb']} of {leaf(metadata['target'])}"
    counts = ", ".join(f"{count} {name}" for name, count in metadata.get("counts", {}).items() if count != "0")
    so_far = f": {counts}" if counts else ""
    if "error" in operation:
        error = operation["error"]
        how = "was cancelled" if metadata["state"] == "CANCELLED" else "has failed"
        return f"{what} {how}: {error.get('message') or error.get('code')}{so_far}"
    if operation.get("done"):
        return f"{what} is done{so_far}{_pace(metadata)}."
    return f"{what} goes on{so_far}; `broker op wait {leaf(operation['name'])}` waits for its end."
