"""A process whose features limit nothing admits everything."""

from broker.core.context.admission import UNLIMITED
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from tests.fixtures.core import make_core

_PROJECT = "projects/p"


async def test_a_core_without_a_feature_that_limits_projects_has_no_limits(database: Database) -> None:
    admission = make_core(database, DatabaseClock(database)).admission
    assert admission is UNLIMITED
    assert not admission.is_metered, "the hot paths ask for no gauge"


async def test_without_limits_nothing_has_to_wait_however_much_was_taken(database: Database) -> None:
    for gauge in (UNLIMITED.publishing(_PROJECT, ""), UNLIMITED.subscribing(_PROJECT, "someone")):
        now = await UNLIMITED.check(gauge, _PROJECT)
        gauge.take(now, requests=10**9, messages=10**9, size=10**15)
        await UNLIMITED.check(gauge, _PROJECT, requests_alone=True)
        gauge.check(now)
        assert gauge.wait(now) == 0
        assert gauge.left(now, messages=1_000, size=10**7) == (1_000, 10**7)
    async with database.transaction() as connection:
        await UNLIMITED.check_count(connection, _PROJECT, "topics")
    connections = [await UNLIMITED.connect(_PROJECT) for _ in range(1_000)]
    for connection in connections:
        with connection:
            pass
        connection.close()
