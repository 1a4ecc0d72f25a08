"""A10: what is older than the retention is not pushed."""

from collections.abc import Callable
from datetime import timedelta

import httpx

from broker.core.log.partitions import drop_partition, list_partitions, make_partitions_ahead
from broker.db.driver.database import Database
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest
from tests.fixtures.log import add_subscription, make_log
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes


async def test_a_message_past_its_retention_is_not_pushed(
    start_broker: Callable[..., BrokerProcess], database: Database, database_url: str, push_sink: PushSink
) -> None:
    """10 minutes, the shortest there is; the same message is pushed where it is kept longer."""
    then = await database.now() - timedelta(minutes=11)
    async with database.connection() as connection:
        for partition in await list_partitions(connection):  # from where the run of tests began: perhaps later
            assert await drop_partition(connection, partition)
        await make_partitions_ahead(connection, now=then)
    log = await make_log(database, then)
    async with database.transaction() as transaction:
        await add_subscription(transaction, log.topic, "keeps", then)
    await log.publish("old")
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        pushes = Pushes(Rest(client, "projects/p"), push_sink)
        body = {"subscription": {"messageRetentionDuration": "600s"}, "updateMask": "messageRetentionDuration"}
        await pushes.rest.ok("PATCH", pushes.rest.subscription("t-sub"), body)
        paths = {name: pushes.path() for name in ("t-sub", "keeps")}
        for name, path in paths.items():
            await pushes.push_to(path, name)
        await pushes.rest.publish("new", topic="t")
        assert sorted(await pushes.texts(paths["keeps"], 2)) == ["new", "old"]
        await pushes.until_taken(paths["t-sub"], "new")
        assert await pushes.texts(paths["t-sub"]) == ["new"]
