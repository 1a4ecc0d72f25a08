"""A process notices limits that change while it reads them."""

import asyncio

from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.quotas.quota import ProjectQuotas
from broker.features.quotas.quotas import Quotas
from broker.features.quotas.rows import lock_quotas, write_quotas
from tests.interleavings.steps import until_waiting

PROJECT = "projects/p"
LIMITED = ProjectQuotas({"connections": 1})


async def test_limits_that_change_during_a_read_are_read_again_with_the_next_check(database: Database) -> None:
    clock = DatabaseClock(database)
    await clock.synchronise()
    quotas = Quotas(database, clock)
    async with database.connection() as session:
        async with session.transaction():
            await session.execute(b"LOCK TABLE quota_buckets")  # which a read touches once it has the limits
            reading = asyncio.create_task(quotas.load())
            await until_waiting(database)
            async with database.transaction() as changing:
                await lock_quotas(changing, project=PROJECT)
                await write_quotas(changing, project=PROJECT, quotas=LIMITED)
            quotas.changed(f"{PROJECT}/quotas")
        await reading
    assert not quotas.is_set(PROJECT).limits, "they were read before the change"
    await quotas.balance()
    assert quotas.is_set(PROJECT) == LIMITED
