"""The lines by which two texts differ."""

from collections.abc import Sequence
from difflib import unified_diff

from broker.console.actions.action import Change

_AROUND = 2  # lines that stay, around those that change
_MOST = 400  # lines that are shown
_MOST_COMPARED = 200_000  # characters of a text: comparing takes a time that grows with the square of its lines


def differences(before: str, after: str, *, around: int = _AROUND) -> Sequence[Change]:
    """Return the lines that come and go, with `around` that stay before and after; none if the texts are equal."""
    if before == after:
        return []
    if len(before) > _MOST_COMPARED or len(after) > _MOST_COMPARED:
        return [Change(" ", f"{len(before):,} characters become {len(after):,}: too many to compare them here.")]
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=around))[2:]
    found = [Change(line[0], line[1:]) if line[0] in "+- " else Change(" ", "\u2026") for line in lines[1:]]
    return [
        *found[:_MOST],
        *([Change(" ", f"and {len(found) - _MOST:,} lines more")] if len(found) > _MOST else []),
    ]
