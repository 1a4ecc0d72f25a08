"""The path of the embedded PostgreSQL's socket: in the data directory, unless that path is too long for a socket.

If it is, the socket is in a directory of its own with an unpredictable name, in the directory for temporary files;
the link `run` in the data directory points to it.
"""

import os
import pwd
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from broker.db.embedded.system_user import make_private_directory

_MAX_PATH = 100  # bytes; the kernel's limit is 107
_LIST_CHARACTERS = frozenset(",\"'")  # special characters in unix_socket_directories, a list of quoted names


def socket_directory(directory: Path) -> Path:
    """The directory of the sockets of a data directory.  Raises OSError if it is elsewhere and was never made."""
    run = directory / "run"
    return run if _can_hold_socket(run) else Path(os.readlink(run))


def make_socket_directory(directory: Path, user: pwd.struct_passwd | None) -> Path:
    """Make it, for `user` alone to enter; the one that there is already stays.  Raises OSError."""
    run = directory / "run"
    if _can_hold_socket(run):
        if run.is_symlink():  # the data directory has been moved here
            run.unlink()
        make_private_directory(run, user)
        return run
    if run.is_symlink():  # left by a broker that was killed, or by a PostgreSQL that is restarted
        with suppress(OSError):  # deleted since, and the name is used by another process
            made = Path(os.readlink(run))
            make_private_directory(made, user)
            return made
        run.unlink()
    shutil.rmtree(run, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="broker-"))
    if not _can_hold_socket(made):
        made.rmdir()
        raise OSError(f"the path of temporary files {made.parent} is too long for a socket; set TMPDIR to another")
    make_private_directory(made, user)
    run.symlink_to(made)
    return made


def remove_socket_directory(directory: Path) -> None:
    """Leave nothing in the directory of temporary files."""
    run = directory / "run"
    if run.is_symlink():
        with suppress(OSError):
            os.rmdir(os.readlink(run))
        run.unlink()


def _can_hold_socket(directory: Path) -> bool:
    path = str(directory / ".s.PGSQL.5432")
    return len(os.fsencode(path)) <= _MAX_PATH and not _LIST_CHARACTERS & set(path)
