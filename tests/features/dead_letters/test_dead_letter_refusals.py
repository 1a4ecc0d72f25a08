"""A dead-letter topic or a message that is refused does not hold up the dead letters of others (A5)."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg
import pytest

from broker.app.broker import Broker
from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.dead_letters.forwarding import dead_letter_forwarder
from broker.model.errors import Unavailable
from tests.conformance.test_schemas import create, record
from tests.fixtures.broker import Rest, message, text


@dataclass
class _Office:
    broker: Broker
    rest: Rest
    database_url: str

    async def give_up(self, name: str, *bodies: str, **dead_letter_topic: object) -> None:
        """Messages of a subscription with a dead-letter topic of its own, and a subscription there."""
        rest = self.rest
        await rest.create_topic(f"dead-of-{name}", **dead_letter_topic)
        await rest.create_subscription(f"letters-of-{name}", f"dead-of-{name}")
        await rest.create_topic(f"of-{name}")
        policy = {"deadLetterTopic": rest.topic(f"dead-of-{name}")}
        ordered = any(":" in body for body in bodies)
        await rest.create_subscription(name, f"of-{name}", deadLetterPolicy=policy, enableMessageOrdering=ordered)
        for body in bodies:
            key = body.partition(":")[0] if ":" in body else ""
            await rest.publish(message(body, orderingKey=key) if key else body, topic=f"of-{name}")
        await self.reject(name)

    async def reject(self, name: str) -> None:
        """What is delivered of it now; of an ordering key the first message."""
        first = {
            each["message"].get("orderingKey", each["ackId"]): each["ackId"] for each in await self._pull(name)
        }
        await self.rest.ok("POST", f"{self.rest.subscription(name)}:reject", {"ackIds": list(first.values())})

    async def _pull(self, name: str) -> list[dict[str, dict[str, str]]]:
        return list(reversed(await self.rest.pull(name)))  # so that the first of a key is the one that is kept

    async def run_once(self) -> int:
        return await self.broker.workers["dead-letter forwarder"].run_once()

    async def dead_letters(self, name: str) -> list[str]:
        return sorted(map(text, await self.rest.drain(f"letters-of-{name}")))

    async def execute(self, *statements: str) -> None:
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            await connection.execute(f"SET search_path = {DEFAULT_SCHEMA}".encode())
            for statement in statements:
                await connection.execute(statement.encode())

    async def refuse(self, body: str, *, sqlstate: str = "P0001") -> None:
        """From now on the database takes no message like this, by an error that nobody foresees."""
        await self.execute(
            "CREATE FUNCTION refuse(data bytea[]) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$"
            f" BEGIN IF '{body}'::bytea = ANY (data) THEN RAISE 'not this one' USING ERRCODE = '{sqlstate}';"
            " END IF; RETURN true; END $$",
            "ALTER TABLE message_batches ADD CONSTRAINT refuse CHECK (refuse(data)) NOT VALID",
        )

    async def refuse_no_more(self) -> None:
        await self.execute("ALTER TABLE message_batches DROP CONSTRAINT refuse")


pytestmark = pytest.mark.own_broker(dead_letter_interval_seconds=600)


@pytest.fixture
def office(broker: Broker, rest: Rest, database_url: str) -> _Office:
    return _Office(broker, rest, database_url)


def _frozen(office: _Office) -> Awaitable[object]:
    return office.rest.ok("POST", f"{office.rest.topic('dead-of-first')}:freeze", {"reason": "We move."})


def _deleted(office: _Office) -> Awaitable[object]:
    return office.rest.ok("DELETE", office.rest.topic("dead-of-first"))


@pytest.mark.parametrize("refuses", [_frozen, _deleted])
async def test_a_dead_letter_topic_that_takes_nothing_holds_up_no_other_subscription(
    office: _Office, refuses: Callable[[_Office], Awaitable[object]]
) -> None:
    await office.give_up("first", "waits")
    await office.give_up("other", "goes")
    await refuses(office)
    assert await office.run_once() == 1
    assert await office.dead_letters("other") == ["goes"]


async def test_dead_letters_keep_neither_to_the_schema_of_their_topic_nor_to_a_quota(office: _Office) -> None:
    """They were accepted once; where should they go?"""
    schema = (await create(office.rest, definition=record(id="string")))["name"]
    settings = {"schema": schema, "encoding": "JSON"}
    await office.give_up("first", "no record", schemaSettings=settings)
    await office.give_up("other", "goes")
    limits = {"limits": {"publishMessages": 1, "publishBytes": 1000}}
    await office.rest.ok("PATCH", "projects/p/quotas", limits)
    assert await office.run_once() == 2
    assert (await office.dead_letters("first"), await office.dead_letters("other")) == (["no record"], ["goes"])


async def test_a_message_that_the_database_refuses_holds_up_no_other_and_is_reported_once(
    office: _Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.give_up("first", *(f"{number}" for number in range(20)))
    await office.give_up("other", "goes")
    await office.refuse("7")
    with caplog.at_level(logging.WARNING):
        assert await office.run_once() == 20
        assert await office.run_once() == 0
    assert await office.dead_letters("first") == sorted(f"{number}" for number in range(20) if number != 7)
    assert await office.dead_letters("other") == ["goes"]
    [reported] = [each for each in caplog.messages if "cannot be published" in each]
    assert reported.startswith("dead letter ")
    assert "of projects/p/subscriptions/first cannot be published, and is tried again and again: " in reported
    await office.refuse_no_more()
    assert await office.run_once() == 0  # it is passed by for a while
    monkeypatch.setattr(dead_letter_forwarder, "PASSED_BY", -dead_letter_forwarder.PASSED_BY)
    assert await office.run_once() == 1
    assert await office.dead_letters("first") == ["7"]


async def test_a_refused_message_of_an_ordering_key_holds_up_its_key_only(office: _Office) -> None:
    await office.give_up("first", "k:1", "j:1", "k:2")
    await office.refuse("k:1")
    assert await office.run_once() == 1
    assert await office.dead_letters("first") == ["j:1"]
    assert await office.rest.pull("first") == []


async def test_a_subscription_whose_dead_letters_fail_holds_up_no_other(
    office: _Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its shard were on a server that is away, which is reported for the server."""
    await office.give_up("first", "waits")
    await office.give_up("other", "goes")
    real = dead_letter_forwarder.forward_dead_letters

    async def away(*arguments: object, **named: object) -> object:
        if getattr(named["subscription"], "name", "").endswith("/first"):
            raise Unavailable("The server cannot be reached.")
        return await real(*arguments, **named)  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patched:
        patched.setattr(dead_letter_forwarder, "forward_dead_letters", away)
        assert await office.run_once() == 1
    assert await office.dead_letters("other") == ["goes"]
    assert not [each for each in caplog.messages if "dead letters of projects/p/subscriptions/first" in each]
    assert await office.run_once() == 1


async def test_a_deadlock_is_reported_without_a_traceback_and_tried_again(
    office: _Office, caplog: pytest.LogCaptureFixture
) -> None:
    await office.give_up("first", "m")
    await office.refuse("m", sqlstate="40P01")
    with caplog.at_level(logging.WARNING):
        assert await office.run_once() == 0
    [record] = [
        each for each in caplog.records if "dead letters of projects/p/subscriptions/first" in each.getMessage()
    ]
    assert record.exc_info is None
    await office.refuse_no_more()
    assert await office.run_once() == 1
    assert await office.dead_letters("first") == ["m"]
