"""Reports two-phase commits of whose outcome a node of a Citus cluster has not been informed, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.db.citus.citus import citus_version
from broker.db.citus.prepared import LONG_SECONDS, READ_PREPARED
from broker.db.schema.schema_state import read_only_session, saying_why


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction that is neither committed nor undone, by its name on a node."""

    node: str
    name: str
    seconds: int


def inspect_prepared_transactions(database_url: str) -> Sequence[Prepared]:
    """Returns the transactions that have been prepared for long; none without Citus.

    Raises DatabaseUnreachable.
    """
    with saying_why("The nodes cannot be looked at"), read_only_session(database_url) as connection:
        if not citus_version(connection):
            return ()
        found = [
            Prepared(node, name, seconds)
            for node, _, prepared in connection.execute(READ_PREPARED).fetchall()
            for name, seconds in prepared or ()
        ]
    return [each for each in found if each.seconds > LONG_SECONDS]
