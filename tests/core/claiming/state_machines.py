"""Running a Hypothesis state machine on a database; its rules drive the store themselves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from hypothesis import HealthCheck, settings

from broker.core.log.partitions import AHEAD, make_partitions_ahead
from broker.db.driver.database import Database

Machine = TypeVar("Machine")

HOURS = timedelta(hours=3)


@contextmanager
def on_database(machine: type[Machine], database_url: str) -> Iterator[type[Machine]]:
    """Yields the machine with a `runner` for coroutines and an open `database`.

    The database takes messages for HOURS: a machine that runs for long publishes at the present time.
    """

    async def opened() -> Database:
        database = Database(database_url, pool_size=2)
        now = await database.now()
        async with database.connection() as connection:
            for number in range(HOURS // AHEAD):
                await make_partitions_ahead(connection, now=now + number * AHEAD)
        return database

    with asyncio.Runner() as runner:
        database = runner.run(opened())
        yield type(f"Bound{machine.__name__}", (machine,), {"runner": runner, "database": database})
        runner.run(database.close())


def short_steps(examples: int) -> settings:
    """So many runs of at most 40 steps, the same ones each time."""
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
