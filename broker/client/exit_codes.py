"""Exit codes of commands, by which a script can act without parsing messages."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
MISUSE: Final = 2
MISSING: Final = 3
NOT_REACHED: Final = 4
NOT_ALLOWED: Final = 5
INTERRUPTED: Final = 130  # as shells have it of Ctrl-C

_BY_STATUS = {
    "NOT_FOUND": MISSING,
    "UNAVAILABLE": NOT_REACHED,
    "DEADLINE_EXCEEDED": NOT_REACHED,
    "RESOURCE_EXHAUSTED": NOT_REACHED,
    "UNAUTHENTICATED": NOT_ALLOWED,
    "PERMISSION_DENIED": NOT_ALLOWED,
}
IN_WORDS = "Exit code: 0 done, 1 refused, 2 a mistake, 3 not there, 4 try again, 5 not allowed."


def exit_code(status: str) -> int:
    """Returns the exit code for a refusal with this canonical code."""
    return _BY_STATUS.get(status, REFUSED)
