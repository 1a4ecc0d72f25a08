"""The expirer and the record of what is in use, in brokers that really run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import LiteralString

import httpx
import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.expiration.subscription_expirer import SubscriptionExpirer
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message
from tests.fixtures.core import make_core

StartBroker = Callable[..., BrokerProcess]


@dataclass
class Served:
    """A broker of the test's own, and its database."""

    broker: BrokerProcess
    rest: Rest
    database_url: str

    def age(self, days: int = 30) -> None:
        """Let all subscriptions be unused for so long, and watched for long enough."""
        with psycopg.connect(self.database_url, autocommit=True) as admin:
            admin.execute(
                "UPDATE subscriptions SET last_active_at = now() - make_interval(days => %s),"
                " idle_watched = '1 day', idle_watched_at = now()",
                [days],
            )

    def used(self) -> set[str]:
        """The subscriptions that are written down as used a moment ago."""
        return self.names("last_active_at > now() - interval '1 hour'")

    def names(self, condition: LiteralString = "true") -> set[str]:
        with psycopg.connect(self.database_url) as admin:
            rows = admin.execute(f"SELECT name FROM subscriptions WHERE {condition}")
            return {name.rpartition("/")[2] for (name,) in rows}


@pytest.fixture
async def served(start_broker: StartBroker, database_url: str, project: str) -> AsyncIterator[Served]:
    env = {"BROKER_PULL_WAIT_SECONDS": "0.05"}
    broker = start_broker("--database-url", database_url, "--port", "0", env=env)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        yield Served(broker, Rest(client, project), database_url)


@asynccontextmanager
async def expirer(
    database: Database, *, in_use: Callable[[], list[int]] = list
) -> AsyncIterator[tuple[SubscriptionExpirer, SubscriptionActivity]]:
    """The expirer of another process."""
    clock = DatabaseClock(database)
    await clock.synchronise()
    activity = SubscriptionActivity(database, clock, in_use=in_use)
    yield SubscriptionExpirer(make_core(database, clock), activity), activity


async def _uses(rest: Rest) -> dict[str, Callable[[str], Awaitable[object]]]:
    """What counts as a use, by the name of the subscription that it is done to."""
    snapshot = f"{rest.project}/snapshots/snap"

    def post(verb: str, **body: object) -> Callable[[str], Awaitable[object]]:
        return lambda name: rest.ok("POST", f"{rest.subscription(name)}:{verb}", body)

    out = {name: await rest.pull(name) for name in ("acknowledge", "deadline", "nack")}
    nacked = {"ackIds": [m["ackId"] for m in out["nack"]], "delay": "60s"}
    return {
        "pull": rest.pull,
        "acknowledge": lambda name: rest.acknowledge(out[name], name),
        "deadline": lambda name: rest.modify_ack_deadline(out[name], 60, name),
        "nack": post("nack", **nacked),
        "seek": post("seek", time="2026-01-01T00:00:00Z"),
        "push-config": post("modifyPushConfig"),
        "update": lambda name: rest.ok(
            "PATCH", rest.subscription(name), {"subscription": {"labels": {"a": "b"}}, "updateMask": "labels"}
        ),
        "snapshot": lambda name: rest.ok("PUT", snapshot, {"subscription": rest.subscription(name)}),
        "detach": post("detach"),
    }


USES = {"pull", "acknowledge", "deadline", "nack", "seek", "push-config", "update", "snapshot", "detach"}


async def test_what_is_used_is_written_down_at_the_latest_when_the_broker_stops(served: Served) -> None:
    rest = served.rest
    await rest.create_topic()
    for name in (*USES, "looked-at", "published-to"):
        await rest.create_subscription(name)
    await rest.publish("a")
    uses = await _uses(rest)
    assert uses.keys() == USES
    served.age()
    assert served.used() == set()
    for name, use in uses.items():
        await use(name)
    for path in (rest.subscription("looked-at"), f"{rest.subscription('looked-at')}/snapshot"):
        await rest.ok("GET", path)
    await rest.ok("GET", f"{rest.project}/subscriptions")
    await rest.publish("b")
    await rest.error("POST", f"{rest.subscription('looked-at')}:acknowledge", {"ackIds": ["wrong"]})
    assert await asyncio.to_thread(served.broker.stop) == 0
    assert served.used() == USES


async def test_an_expired_subscription_is_gone_for_every_process_and_the_others_are_not(
    served: Served, database: Database
) -> None:
    rest = served.rest
    await rest.create_topic()
    await rest.create_subscription("idle", expirationPolicy={"ttl": "864000s"})
    await rest.create_subscription("pulled", expirationPolicy={"ttl": "864000s"})
    await rest.create_subscription("patient", expirationPolicy={"ttl": "8640000s"})
    await rest.create_subscription("eternal", expirationPolicy={})
    await rest.publish(message("a"))
    await rest.pull("idle")  # the broker knows it by now
    policy = {"bindings": [{"role": "roles/pubsub.subscriber", "members": ["user:ann@shop.example"]}]}
    await rest.ok("POST", f"{rest.subscription('idle')}:setIamPolicy", {"policy": policy})
    served.age()
    async with expirer(database) as (worker, activity):
        [(pulled,)] = await _rows(database, "SELECT subscription_id FROM subscriptions WHERE name LIKE '%/pulled'")
        activity.used(pulled)
        assert await worker.run_once() == 1
        assert await worker.run_once() == 0
    assert await _rows(database, "SELECT resource FROM policies") == []
    listed = (await rest.ok("GET", f"{rest.project}/subscriptions"))["subscriptions"]
    assert {s["name"].rpartition("/")[2] for s in listed} == {"pulled", "patient", "eternal"}
    assert (await rest.error("POST", f"{rest.subscription('idle')}:pull", {"maxMessages": 1}))[0] == "NOT_FOUND"
    await rest.create_subscription("idle")
    assert await rest.pull("idle") == [], "a new one of the name begins anew"


async def test_a_subscription_that_somebody_waits_for_stays(served: Served, database: Database) -> None:
    rest = served.rest
    await rest.create_topic()
    await rest.create_subscription("waiting", expirationPolicy={"ttl": "864000s"})
    [(subscription_id,)] = await _rows(database, "SELECT subscription_id FROM subscriptions")
    served.age()
    async with expirer(database, in_use=lambda: [subscription_id]) as (worker, _):
        assert await worker.run_once() == 0


async def test_many_expire_in_one_pass(served: Served, database: Database) -> None:
    rest = served.rest
    await rest.create_topic()
    await asyncio.gather(*[rest.create_subscription(f"s-{n}") for n in range(101)])
    served.age(days=40)
    async with expirer(database) as (first, _), expirer(database) as (second, _):
        deleted = await asyncio.gather(first.run_once(), second.run_once())
    assert sum(deleted) == 101
    assert await rest.ok("GET", f"{rest.project}/subscriptions") == {}


async def test_what_could_not_be_written_is_written_later(database: Database, served: Served) -> None:
    await served.rest.create_topic()
    await served.rest.create_subscription()
    [(subscription_id,)] = await _rows(database, "SELECT subscription_id FROM subscriptions")
    served.age()
    async with expirer(database) as (_, activity):
        activity.used(subscription_id)
        await _rows(database, "ALTER TABLE subscriptions RENAME TO gone")
        with pytest.raises(Exception, match="refused a statement"):
            await activity.record()
        await _rows(database, "ALTER TABLE gone RENAME TO subscriptions")
        assert await activity.record() == 1
        assert await activity.record() == 0
    assert served.used() == {"sub"}


async def _rows(database: Database, statement: str) -> list[tuple[int, ...]]:
    async with database.connection() as connection:
        cursor = await connection.execute(statement.encode(), prepare=False)
        return list(await cursor.fetchall()) if cursor.description else []


async def test_a_running_broker_writes_uses_down_and_deletes_what_has_expired(
    served: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.app.jobs.RECORD_INTERVAL", timedelta(milliseconds=50))
    monkeypatch.setattr("broker.app.jobs.WATCH_INTERVAL", timedelta(milliseconds=100))
    rest = served.rest
    await rest.create_topic()
    await rest.create_subscription("idle", expirationPolicy={"ttl": "864000s"})
    await rest.create_subscription("waited-for", expirationPolicy={"ttl": "8640000s"})
    served.age()
    another = Broker(AppConfig(database_url=served.database_url))
    async with another.running():
        name = rest.subscription("waited-for")
        pull = another.services.pull.pull(name, max_messages=1, return_immediately=False, hung_up=_never)
        waiting = asyncio.create_task(pull)
        await eventually(lambda: served.used() == {"waited-for"})
        await asyncio.to_thread(served.age)  # it may wait for a lock of `another`, which must go on to let go of it
        await eventually(lambda: served.used() == {"waited-for"})
        another.stop_waiting()
        assert (await waiting)[1] == []
        await eventually(lambda: served.names() == {"waited-for"})


async def _never() -> None:
    await asyncio.Event().wait()
