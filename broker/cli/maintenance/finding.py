"""The result of a check of `broker doctor`."""

from typing import Final, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"
UNKNOWN: Final = "unknown"  # the check could not be made: this says nothing about what it checks


class Finding(NamedTuple):
    """The finding of a check, why it matters or how it came about, and the next command or step."""

    check: str
    state: str
    finding: str
    why: str = ""
    command: str = ""


def not_checked(check: str, why: str, command: str = "") -> Finding:
    """The check failed for a reason that has nothing to do with what it checks."""
    return Finding(check, UNKNOWN, "could not be checked", why.rstrip("."), command)
