"""The result of a check of `broker doctor` or `GET /v1/broker/findings`."""

from typing import Final, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"
UNKNOWN: Final = "unknown"  # the check could not be made: this says nothing about what it checks


class Finding(NamedTuple):
    """The result of one check: the finding, why it matters or how it came about, and the next command or step."""

    check: str
    state: str
    finding: str
    why: str = ""
    command: str = ""

    @property
    def sentence(self) -> str:
        """Returns the finding and why it matters as one sentence."""
        why = f" ({self.why.rstrip('.')})" if self.why else ""
        return f"{self.check}: {self.finding.rstrip('.')}{why}."


def not_checked(check: str, why: str, command: str = "") -> Finding:
    """Returns the finding of a check that failed for a reason that has nothing to do with what it checks."""
    return Finding(check, UNKNOWN, "could not be checked", why.rstrip("."), command)
