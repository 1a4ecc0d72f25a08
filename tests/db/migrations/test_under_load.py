"""The next revisions come while a broker of this version is at work, and a session is in their way."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from broker.db.schema import migrations, schema_state
from broker.db.schema.migration_waits import Patience
from broker.db.schema.schema_state import DatabaseUnreachable, head_revision
from tests.cli.processes import faults
from tests.db.migrations.revisions import (
    ADD_COLUMNS,
    BUILD_INDEXES,
    contract,
    made_up,
    with_contract,
    with_revisions,
)
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message

PATIENCE = Patience(lock_seconds=0.3, pause_seconds=0.5)


@dataclass
class Load:
    """One client that publishes and one that pulls and acks."""

    rest: Rest
    published: list[str] = field(default_factory=list)
    received: set[str] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    is_over: bool = False  # the calls under way come to their end: what one has received is not lost

    async def publish(self) -> None:
        while not self.is_over:
            answer = await self.rest.call("POST", f"{self.rest.topic()}:publish", {"messages": [message("m")]})
            if answer.status_code == 200:
                self.published += answer.json()["messageIds"]
            else:
                self.refusals.append(answer.json()["error"]["status"])
            await asyncio.sleep(0.01)

    async def pull(self) -> None:
        while not self.is_over:
            body = {"maxMessages": 100, "returnImmediately": True}
            answer = await self.rest.call("POST", f"{self.rest.subscription()}:pull", body)
            received = answer.json().get("receivedMessages", [])
            self.received |= {one["message"]["messageId"] for one in received}
            ack_ids = [one["ackId"] for one in received]
            if ack_ids:
                await self.rest.call("POST", f"{self.rest.subscription()}:acknowledge", {"ackIds": ack_ids})
            await asyncio.sleep(0.01)

    async def three_more(self) -> None:
        """Until three more publishes have been answered."""
        before = len(self.published)
        await eventually(lambda: len(self.published) >= before + 3)


async def test_publishes_go_on_while_a_migration_waits_and_when_it_is_done(
    start_broker: Callable[..., BrokerProcess],
    database_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = with_revisions(tmp_path, ADD_COLUMNS, BUILD_INDEXES)
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        load = Load(Rest(client, "projects/upgrade"))
        await load.rest.create_topic()
        await load.rest.create_subscription()
        tasks = [asyncio.create_task(load.publish()), asyncio.create_task(load.pull())]
        with psycopg.connect(database_url) as forgotten, caplog.at_level(logging.WARNING):
            forgotten.execute("SELECT FROM shards")
            migrating = asyncio.create_task(
                asyncio.to_thread(migrations.upgrade, database_url, directory=directory, patience=PATIENCE)
            )
            await eventually(lambda: "tries again" in caplog.text)
            await load.three_more()  # the migration's wait is over for now, the lock still held
            assert not migrating.done()
        assert await migrating == made_up(2)
        await load.three_more()
        assert (await client.get("/readyz")).status_code == 200
        load.is_over = True
        await asyncio.gather(*tasks)
        load.received |= {one["message"]["messageId"] for one in await load.rest.drain()}
    assert set(load.published) <= load.received
    assert set(load.refusals) <= {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}  # by a slow machine
    assert faults(broker) == []


async def test_what_a_running_broker_needs_is_not_taken_away_and_it_loses_nothing(
    start_broker: Callable[..., BrokerProcess], database_url: str, tmp_path: Path
) -> None:
    """A broker that does not know a revision serves on while it is refused; once it has stopped it goes through."""
    directory = with_contract(tmp_path, 'op.execute("ALTER TABLE topics DROP COLUMN settings")')
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        load = Load(Rest(client, "projects/contract"))
        await load.rest.create_topic()
        await load.rest.create_subscription()
        tasks = [asyncio.create_task(load.publish()), asyncio.create_task(load.pull())]
        await load.three_more()
        with pytest.raises(
            DatabaseUnreachable, match="takes away what 1 of the broker processes at work"
        ) as refused:
            await asyncio.to_thread(migrations.upgrade, database_url, directory=directory, patience=PATIENCE)
        assert f"which know {head_revision()}" in str(refused.value)
        await load.three_more()
        load.is_over = True
        await asyncio.gather(*tasks)
        load.received |= {one["message"]["messageId"] for one in await load.rest.drain()}
        assert (await client.get("/readyz")).status_code == 200
    assert set(load.published) <= load.received
    assert schema_state.inspect(database_url).revision == head_revision()
    assert broker.stop() == 0
    migrations.upgrade(database_url, directory=directory)
    assert schema_state.inspect(database_url).revision == contract()
    assert "too new for this broker" in schema_state.why_not_served(contract())
