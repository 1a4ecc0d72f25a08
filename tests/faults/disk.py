"""A small disk of the suite's own, which can be full: a file system in memory, made as small as what it holds."""

import contextlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_BYTES = 900_000_000  # a new PostgreSQL has 60 MB; memory is only taken by what is written
_TRIES = 20
_OTHERS, _PAGE = "somebody-else", 4096


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
                self._resize(max(used, _PAGE))  # 0 would be no limit
                return True
        return False

    def free(self) -> None:
        """As large as before."""
        self._resize(_BYTES)

    def take_all_but(self, free: int) -> None:
        """Somebody else's file takes what is free, but for so many bytes; others write meanwhile."""
        size = 0
        with (self.directory / _OTHERS).open("wb") as file:
            step = self._free()
            while step >= _PAGE and (missing := self._free() - free) > 0:
                step = min(step, missing)
                try:
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step
                except OSError:  # there is less by now
                    step //= 2

    def _free(self) -> int:
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def give_back(self) -> None:
        """What that file takes."""
        (self.directory / _OTHERS).unlink()

    def unmount(self) -> None:
        """Whoever still works in it keeps it until it ends."""
        _run("umount", "--lazy", str(self.directory))

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.directory))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
