"""What a message of the outbox may ask of its topic's extensions: as the API has it, and told at the call (J7)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from broker.core.catalog import topic_rows as topics
from broker.features.deduplication.identity import identities
from broker.features.expiry.expiry import times_to_live
from broker.features.priorities.priority import levels_of
from broker.model.deduplication import Deduplication
from broker.model.errors import BrokerError
from broker.model.message import NewMessage
from broker.model.priorities import Priorities
from broker.model.topic_extensions import TopicExtensions
from tests.fixtures.application import Application, publish
from tests.fixtures.log import Log

_KNOWN, _LEVELS = Deduplication(timedelta(minutes=10)), Priorities(3)
ALL = TopicExtensions(delay=True, deduplication=_KNOWN, priorities=_LEVELS, expiry=True)
_OF: Mapping[str, Callable[[NewMessage], Any]] = {
    "broker-ttl": lambda message: times_to_live([message]),
    "broker-priority": lambda message: levels_of([message], _LEVELS),
    "broker-dedup-id": lambda message: identities([message], _KNOWN),
}
_KEYED = ("broker-priority", "0", "k")

BAD = [
    *[
        ("broker-ttl", value, "")
        for value in (
            *("", "5", "0s", "-1s", "0.0000001s", "2678400.000001s", "99999999999999s", "1m", " 1s", "1s\n"),
            *("5e3s", "\N{ARABIC-INDIC DIGIT ONE}s", "9" * 400),
        )
    ],
    *[("broker-priority", value, "") for value in ("", "3", "9", "-1", "00", "1.0", "high", "\u0661", "0\n")],
    _KEYED,
    *[("broker-dedup-id", value, "") for value in ("", "ä" * 257)],
]
GOOD = [
    *[("broker-ttl", value, "") for value in ("0.000001s", "1s", "2678400s", "2678400.0000001s", "000001.5s")],
    *[("broker-priority", value, "") for value in ("0", "1", "2")],
    *[("broker-dedup-id", value, "k") for value in ("x", "ä" * 256, " ")],
]


async def extended(log: Log) -> None:
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=replace(log.topic, extensions=ALL))


async def test_what_cannot_be_is_an_error_of_the_call_and_nothing_is_staged(
    log: Log, application: Application
) -> None:
    with application.session(autocommit=True) as session:
        for name, value, key in BAD:
            publish(session, "without extensions it is an attribute like any", {name: value}, key)
        await log.execute("DELETE FROM outbox")
        await extended(log)
        for name, value, key in BAD:
            with pytest.raises(errors.InvalidParameterValue, match=name) as raised:
                publish(session, "x", {name: value}, key)
            reported = raised.value.diag.message_primary or ""
            assert (value[:60] in reported, len(reported) < 300) == (True, True), reported
            with pytest.raises(BrokerError):
                _OF[name](NewMessage(b"x", {name: value}, ordering_key=key))
    assert await log.rows("SELECT n FROM outbox") == []


async def test_what_can_be_is_taken(log: Log, application: Application) -> None:
    await extended(log)
    with application.session(autocommit=True) as session:
        for name, value, key in GOOD:
            publish(session, "x", {name: value}, key)
            assert _OF[name](NewMessage(b"x", {name: value}, ordering_key=key)) or value == "2"
        publish(session, "x", {"broker-ttl": "60s", "broker-priority": "0", "broker-dedup-id": "1"})
    assert len(await log.rows("SELECT n FROM outbox")) == len(GOOD) + 1


async def test_an_error_leaves_the_transaction_to_the_application(log: Log, application: Application) -> None:
    """It rolls back to where it was, or altogether: nothing of the message is left."""
    await extended(log)
    with application.session() as session:
        session.execute("INSERT INTO orders VALUES (1)")
        session.execute("SAVEPOINT before")
        with pytest.raises(errors.InvalidParameterValue):
            publish(session, "x", {"broker-ttl": "never"})
        session.execute("ROLLBACK TO before")
        publish(session, "y", {"broker-ttl": "60s"})
    assert await log.rows("SELECT convert_from(data, 'UTF8') FROM outbox") == [("y",)]
