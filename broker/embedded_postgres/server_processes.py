"""Whether a postmaster still does its work, by the processes that it has.

A postmaster whose recovery fails for want of disk space now and then neither ends nor tries again: PostgreSQL 18
was seen to refuse connections for ever then, with no startup process.
"""

import contextlib
from pathlib import Path

_PROC = Path("/proc")
# A server that is up has the first, one that recovers the second.
_ONE_OF = (b"postgres: walwriter", b"postgres: startup")


def is_up_or_recovers(postmaster: int) -> bool:
    """False of one that will never serve again by itself, if that lasts.  True where it cannot be told."""
    try:
        children = (_PROC / str(postmaster) / "task" / str(postmaster) / "children").read_text().split()
    except OSError:  # another system than Linux, or the postmaster has ended
        return True
    for child in children:
        with contextlib.suppress(OSError):  # it has ended since
            if (_PROC / child / "cmdline").read_bytes().startswith(_ONE_OF):
                return True
    return False
