"""Runs the second forms of hot statements, for distributed tables (db/driver/statements.py explains them).

A form that is a function runs the batch that contains its statement: `async def NAME(connection, batch)` returns
the rows of each statement of the batch.  `of_one_statement` makes such a function of one that runs only its
statement.  Both send statements in their first form by `connection.run(…, as_written=True)`.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Protocol

from broker.db.driver.statements import BEGIN, Statement

_Bound = tuple[Statement, dict[str, Any]]
_Rows = list[Any]


class _Connection(Protocol):
    @property
    def in_transaction(self) -> bool: ...

    async def run(self, *bound: _Bound, as_written: bool = False) -> list[_Rows]: ...


async def run_in_forms(connection: _Connection, bound: Sequence[_Bound]) -> list[_Rows]:
    """Sends the statements, each in the form for distributed tables if it has one.  Returns the rows of each.

    At most one of them has a form that runs the whole batch.
    """
    batch = [_in_form(statement, given) for statement, given in bound]
    for statement, _ in batch:
        if (run := statement.citus_function) is not None:
            rows: list[_Rows] = await run(connection, batch)
            return rows
    return await connection.run(*batch, as_written=True)


def _in_form(statement: Statement, given: dict[str, Any]) -> _Bound:
    replacing = statement.citus_statement
    return (replacing and replacing.bound(given)) or (statement, given)


def of_one_statement(
    run: Callable[[Any, dict[str, Any]], Awaitable[_Rows]],
) -> Callable[[Any, Sequence[_Bound]], Awaitable[list[_Rows]]]:
    """Makes a form of `async def NAME(connection, given)`, which returns the rows of the statement of that name.

    The statement is sent alone, or in a transaction: statements before and behind it in the batch are sent apart.
    """

    @wraps(run)
    async def run_batch(connection: _Connection, batch: Sequence[_Bound]) -> list[_Rows]:
        number = [statement.citus_function for statement, _ in batch].index(run_batch)
        before, (_, given), after = batch[:number], batch[number], batch[number + 1 :]
        is_whole = connection.in_transaction or (before and before[0][0] is BEGIN)
        if (before or after) and not is_whole:
            raise RuntimeError(f"{run.__name__} is sent with other statements, and no transaction was begun")
        rows = await connection.run(*before, as_written=True) if before else []
        rows.append(await run(connection, given))
        return [*rows, *(await connection.run(*after) if after else [])]

    return run_batch
