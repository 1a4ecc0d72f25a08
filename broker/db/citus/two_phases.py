"""Makes transactions that write to the catalog and to distributed shards atomic.

Citus commits on the nodes first, and then on the coordinator.  A process that is killed in between leaves the
former half, and the transaction is then repeated.  Citus commits in two phases (each node prepares, and the
coordinator's own commit decides) once the transaction has written to a table of the coordinator that Citus knows.
The tables of the catalog are not such tables.  There is one that is, and an UPDATE of it which finds no row is
sufficient: it waits for no lock, and no table grows (docs/decisions/0058-two-phases.md).
"""

import re
from functools import lru_cache

from broker.db.citus.distributed_tables import TABLES, TWO_PHASES

SAY_TWO_PHASES = f"UPDATE {TWO_PHASES} SET said = true"  # noqa: S608

_SHARDS, _CATALOG = 1, 2
_BOTH = _SHARDS | _CATALOG
# Neither the lock of FOR UPDATE nor the UPDATE of ON CONFLICT names a table.
_WRITES = re.compile(r'\b(?:INSERT INTO|DELETE FROM|(?<!FOR )(?<!KEY )(?<!DO )UPDATE)\s+(?:ONLY\s+)?"?(\w+)"?')
_KNOWN_STATEMENTS = 4_096  # the texts of some depend on the length of a list


@lru_cache(_KNOWN_STATEMENTS)
def parts_written(text: str) -> int:
    """Returns the parts that a statement writes to: shards, the catalog, or both."""
    tables = _WRITES.findall(" ".join(text.split()))
    return (_SHARDS if any(table in TABLES for table in tables) else 0) | (
        _CATALOG if any(table not in TABLES for table in tables) else 0
    )


class Written:
    """The tables that the transaction of a connection has written to so far."""

    __slots__ = ("_parts", "_said")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forgets the tables, since the transaction is over."""
        self._parts, self._said = 0, False

    def is_to_be_said(self, parts: int) -> bool:
        """Whether SAY_TWO_PHASES goes before a statement that writes to these: once a transaction."""
        self._parts |= parts
        if self._said or self._parts != _BOTH:
            return False
        self._said = True
        return True
