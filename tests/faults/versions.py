"""Released versions of the broker, out of the history of this repository; and which broker runs which."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.fixtures.broker import repository

RELEASES = {"0.1.0": "c2e9efa8501e12a4f482bd5ae4a3f141db822462"}
RELEASE = "0.1.0"  # that brokers are upgraded from, and go back to
_PARTS = ("broker", "migrations", "api_spec")


@cache
def has_release() -> bool:
    """Whether the history that was cloned goes back so far."""
    found = _git("cat-file", "-e", f"{RELEASES[RELEASE]}^{{commit}}")
    return found.returncode == 0


def released_code(version: str, directory: Path) -> Path:
    """A directory to run the version in."""
    made = directory / version
    made.mkdir(parents=True)
    archive = _git("archive", "--format=tar", RELEASES[version], *_PARTS)
    assert archive.returncode == 0, archive.stderr
    subprocess.run(["tar", "-x", "-C", str(made)], input=archive.stdout, check=True)
    return made


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(repository()), *arguments], capture_output=True, check=False)


class Versions:
    """At first all brokers run the release."""

    def __init__(self, directory: Path, *, brokers: int) -> None:
        self._released = [True] * brokers
        self._directory = directory
        self.code = Path()

    def prepare(self) -> None:
        self.code = released_code(RELEASE, self._directory)

    def change(self, place: int) -> None:
        """The broker at `place` is of the other version when it is started the next time."""
        self._released[place] = not self._released[place]

    def is_released(self, place: int) -> bool:
        return self._released[place]

    def options(self, place: int) -> dict[str, Any]:
        """For the process of the broker at `place`: its program looks for its code where it is started."""
        return {"cwd": self.code if self._released[place] else repository()}
