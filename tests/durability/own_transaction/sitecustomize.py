"""In the processes of a broker: what is written into the journal has a transaction of its own, behind the one that
it tells of.  That is wrong, and must be found (see tests/durability/test_journal_kill.py).
"""

from typing import Any
from weakref import WeakKeyDictionary

from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT

_true_run = HotConnection.run
_left: WeakKeyDictionary[HotConnection, list[Bound]] = WeakKeyDictionary()


async def _run(self: HotConnection, *bound: Bound) -> list[list[Any]]:
    reported = [statement.name == b"insert_journal" for statement, _ in bound]
    _left.setdefault(self, []).extend(
        each for each, is_reported in zip(bound, reported, strict=True) if is_reported
    )
    rest = [each for each, is_reported in zip(bound, reported, strict=True) if not is_reported]
    rows = iter(await _true_run(self, *rest))
    results: list[list[Any]] = [[] if is_reported else next(rows) for is_reported in reported]
    if any(statement is COMMIT for statement, _ in bound) and (late := _left.pop(self)):
        await _true_run(self, (BEGIN, {}), *late, (COMMIT, {}))
    return results


HotConnection.run = _run  # type: ignore[method-assign]
