"""The version of this broker.  Each build has a different one, without tags and between releases.

`0.2.0.dev202611261200+g0123456789ab` was built from the commit 0123456789ab of 2026-11-26, 12:00 UTC, before the
release of 0.2.0.  In a checkout git knows the commit; a wheel has the version that it was built with.  Hatchling
runs this file during a build (see pyproject.toml), so it imports only the standard library.

`python3 broker/version.py` prints the version of the sources around it.
"""

import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

NEXT_RELEASE = "0.2.0"
_UNKNOWN = f"{NEXT_RELEASE}.dev0"  # sources without git and without PKG-INFO
_ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Returns the version of the running program."""
    return _version_of_checkout(_ROOT) or metadata.version("pubsub-broker")


def version_of_sources(root: Path = _ROOT) -> str:
    """Returns the version of a build from `root`, which is a checkout or an unpacked source archive."""
    return _version_of_checkout(root) or _version_of_archive(root) or _UNKNOWN


def _version_of_checkout(root: Path) -> str | None:
    """Returns None if `root` is not a checkout or git does not answer."""
    if not (root / ".git").exists():  # git would search the directories above
        return None
    commit = _git(root, "show", "--no-patch", "--abbrev=12", "--format=%ct %h", "HEAD")
    if commit is None:
        return None
    seconds, abbreviation = commit.split()
    time = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y%m%d%H%M")
    changed = ".dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{NEXT_RELEASE}.dev{time}+g{abbreviation}{changed}"


def _version_of_archive(root: Path) -> str | None:
    about = root / "PKG-INFO"
    found = re.search(r"^Version: (\S+)$", about.read_text("utf-8"), re.MULTILINE) if about.exists() else None
    return found[1] if found else None


def _git(root: Path, *arguments: str) -> str | None:
    # The options win over GIT_DIR, which hooks of other repositories set.
    command = ["git", "--no-optional-locks", f"--git-dir={root / '.git'}", f"--work-tree={root}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    print(version_of_sources())  # noqa: T201
