"""The statements that a broker's PostgreSQL runs, by its log."""

import re
import time
from collections.abc import Sequence

import psycopg

from benchmarks.servers import Broker
from benchmarks.wire import LoadFailed

_ENTRY = re.compile(r"\n(?!\t)")  # further lines of a statement are indented
_STATEMENT = re.compile(r"LOG: +(?:execute [^:]+|statement): ")
_BOUNDARY = re.compile(r"(?:BEGIN|COMMIT|ROLLBACK|SET|DEALLOCATE)\b")
_READ_SECONDS = 0.5  # for every session to read its settings


class StatementLog:
    """PostgreSQL's log of a broker, which has each statement within the block."""

    def __init__(self, broker: Broker) -> None:
        self._url = broker.superuser_url
        self._file = (broker.directory / "data" / "postgres.log").open("rb")

    def __enter__(self) -> "StatementLog":
        """Raises LoadFailed."""
        self._run(b"ALTER SYSTEM SET log_statement = 'all'")
        self.skip()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(b"ALTER SYSTEM RESET log_statement")
        self._file.close()

    def _run(self, statement: bytes) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(statement)
                connection.execute(b"SELECT pg_reload_conf()")
        except psycopg.Error as error:
            raise LoadFailed(f"PostgreSQL: {error}") from error
        time.sleep(_READ_SECONDS)

    def skip(self) -> None:
        """Goes to the end of the log."""
        self._file.seek(0, 2)

    def read(self) -> Sequence[str]:
        """Returns the statements from here to the end, without those that begin or end a transaction."""
        entries = _ENTRY.split(self._file.read().decode(errors="replace"))
        texts = [entry[found.end() :] for entry in entries if (found := _STATEMENT.search(entry))]
        return [text for text in texts if not _BOUNDARY.match(text)]
