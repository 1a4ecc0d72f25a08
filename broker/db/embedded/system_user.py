"""The user that PostgreSQL's processes run as.  PostgreSQL refuses to run as root, so under root it gets another
user.

That user has no capabilities and none of root's groups.  It cannot pass directories that are closed to it, such as
/root.  So it does not get the paths of the data directory and the sockets, but inherits both as open directories,
and accesses them as /proc/self/fd/N, which requires no permission on the directories above (docs/decisions/0015).
"""

import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

_USERS = ("postgres", "nobody")  # the first that exists
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_OPEN_FILES = Path("/proc/self/fd")


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


def own_name() -> str:
    """The name of the user who runs this process.  Raises OSError if it has none; PostgreSQL needs one."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise OSError(f"PostgreSQL needs a user with a name, and {os.geteuid()} has none in /etc/passwd") from None


def running_as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Options of subprocess.Popen for PostgreSQL's programs, as `user` (None: as this process).

    Leaving root, the kernel takes all capabilities away.  None of our environment is passed on: it may hold
    secrets, which the user of PostgreSQL could read, and variables that lead the programs elsewhere (PGHOSTADDR).
    """
    options: dict[str, Any] = {"cwd": "/", "env": _ENVIRONMENT}
    if user is not None:
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return options


@contextmanager
def handed_over(user: pwd.struct_passwd | None, *paths: Path) -> Iterator[tuple[list[str], list[int]]]:
    """Yields the names of `paths` for a process of `user`, and the file descriptors that it needs for them.

    The process is given the descriptors as pass_fds.  They are closed at the end of the block: start it within the
    block.  Raises OSError.
    """
    if user is None or not _OPEN_FILES.exists():
        yield [str(path) for path in paths], []
        return
    with ExitStack() as stack:
        descriptors = []
        for path in paths:
            descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            stack.callback(os.close, descriptors[-1])
        yield [str(_OPEN_FILES / str(descriptor)) for descriptor in descriptors], descriptors


def make_private_directory(path: Path, user: pwd.struct_passwd | None) -> None:
    """Make a directory that only `user` can enter, or make sure that it is one.

    Links are not followed, and what belongs to somebody else is left alone: anybody may write into /tmp.
    Raises OSError.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(directory).st_uid not in (os.geteuid(), user.pw_uid if user else os.geteuid()):
            raise PermissionError(f"{path} belongs to another user")
        if user is not None:
            os.fchown(directory, user.pw_uid, user.pw_gid)
        os.fchmod(directory, 0o700)
    finally:
        os.close(directory)


def write_private_file(path: Path, text: str, user: pwd.struct_passwd | None) -> None:
    """Write a file that only `user` (and root) can read, in place of what is there.  Raises OSError."""
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "w") as opened:
        opened.write(text)
        if user is not None:
            os.fchown(file, user.pw_uid, user.pw_gid)


def can_run(program: Path, user: pwd.struct_passwd) -> bool:
    """Whether `user` may read and execute a file; by the modes, as access-control lists are rare."""
    program = program.resolve()
    return _may(program, user, 0o5) and all(_may(above, user, 0o1) for above in program.parents)


def _may(path: Path, user: pwd.struct_passwd, wanted: int) -> bool:
    status = path.stat()
    shift = 6 if status.st_uid == user.pw_uid else 3 if status.st_gid == user.pw_gid else 0
    return (status.st_mode >> shift) & wanted == wanted
