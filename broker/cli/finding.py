"""The result of a check of `broker doctor`."""

from typing import Final, NamedTuple

OK: Final = "ok"
LOOK: Final = "look"  # somebody should look at it
MEND: Final = "mend"
UNKNOWN: Final = "unknown"  # the check could not be made: this says nothing about what it checks


class Finding(NamedTuple):
    """`mend` says what to do."""

    check: str
    state: str
    finding: str
    mend: str = ""


def not_checked(check: str, why: str, mend: str = "") -> Finding:
    """The check failed for a reason that has nothing to do with what it checks."""
    return Finding(check, UNKNOWN, f"could not be checked: {why.rstrip('.')}", mend)
