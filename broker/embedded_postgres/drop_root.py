"""Running PostgreSQL from root: it refuses that user, so it runs as another.

The other user would have to pass through every directory above the data and the programs, and a checkout below
/root is closed to it.  Opening those directories to everybody would be rude, so the process keeps one capability
instead, that to read and write files whatever their mode.  It can do no more with it than root, who started it,
could have done anyway.
"""

import ctypes
import os
import pwd
from collections.abc import Callable
from pathlib import Path

_USERS = ("postgres", "nobody")  # the first that exists
_PR_SET_KEEPCAPS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 28, 47, 2
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


def unprivileged_user() -> pwd.struct_passwd | None:
    """The user that PostgreSQL runs as; None if this process is not root and can run it itself."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("root cannot run PostgreSQL, and there is no user postgres or nobody to run it as")


def own(path: Path, user: pwd.struct_passwd | None) -> None:
    """Give a directory to the user that PostgreSQL runs as."""
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def become(user: pwd.struct_passwd | None) -> Callable[[], None] | None:
    """What a child process calls before it executes PostgreSQL's program."""
    if user is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing may be
    uid, gid = user.pw_uid, user.pw_gid

    def drop() -> None:
        # PostgreSQL asks access(2) about its own programs, which heeds a capability only with this bit set.
        libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        mask = 1 << _CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)  # effective, permitted, inheritable
        if libc.capset(header, sets) == 0:  # a container may withhold it; then modes decide
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)

    return drop
