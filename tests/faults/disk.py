"""A small disk of the suite's own, which can be full: a file system in memory, made as small as what it holds."""

import contextlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_BYTES = 900_000_000  # a new PostgreSQL has 60 MB; memory is only taken by what is written
_TRIES = 20


@cache
def can_mount() -> bool:
    """Whether this process may mount file systems, and make them smaller."""
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        disk = Disk(Path(name))
        try:
            disk.mount()
        except (OSError, subprocess.SubprocessError):
            return False
        try:
            return disk.fill()
        finally:
            disk.unmount()


class Disk:
    """Mounted on a directory, from `mount` to `unmount`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def mount(self) -> None:
        """Raises OSError or subprocess.SubprocessError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={_BYTES},mode=0755", "tmpfs", str(self.directory))

    def fill(self) -> bool:
        """From now on it holds no more than it does; False if it grew too fast for that."""
        for _ in range(_TRIES):
            status = os.statvfs(self.directory)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            with contextlib.suppress(subprocess.CalledProcessError):  # it holds more than that by now
                self._resize(max(used, 4096))  # 0 would be no limit
                return True
        return False

    def free(self) -> None:
        """As large as before."""
        self._resize(_BYTES)

    def unmount(self) -> None:
        """Whoever still works in it keeps it until it ends."""
        _run("umount", "--lazy", str(self.directory))

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.directory))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
