"""Two versions of the broker, this one and a made-up next one; and which broker runs which.

The next version is a copy of this code that has further revisions of the schema, and does not start before they are
there.
"""

import shutil
from pathlib import Path
from typing import Any

from tests.db.migrations.revisions import add_columns, with_revisions
from tests.fixtures.broker import repository

# Not of `shards`: a session that holds vacuum back has read it, and keeps its lock for the whole of a run.
NEXT = [add_columns(table) for table in ("topics", "subscriptions", "cursors", "message_batches")]


class Versions:
    """At first all brokers run this version."""

    def __init__(self, directory: Path, *, brokers: int) -> None:
        self._next = [False] * brokers
        self.code = directory / "next"

    @property
    def migrations(self) -> Path:
        """Those of the next version."""
        return self.code / "migrations"

    def prepare(self) -> None:
        """Make the next version."""
        for part in ("broker", "api_spec"):
            shutil.copytree(repository() / part, self.code / part, ignore=shutil.ignore_patterns("__pycache__"))
        with_revisions(self.code, *NEXT)

    def change(self, place: int) -> None:
        """The broker at `place` is of the other version when it is started the next time."""
        self._next[place] = not self._next[place]

    def is_next(self, place: int) -> bool:
        return self._next[place]

    def options(self, place: int) -> dict[str, Any]:
        """For the process of the broker at `place`: its program looks for its code where it is started."""
        return {"cwd": self.code if self._next[place] else repository()}
