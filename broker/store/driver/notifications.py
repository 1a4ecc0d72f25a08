"""Wake-ups between broker processes, over LISTEN and NOTIFY.

Three channels, for each schema its own.  `broker_wake` carries what may be claimed now, as words: `s12` (shard 12
has new messages), `r7` (subscription 7 has redeliveries, or another time for them).  `broker_resources` carries the
name of a topic or subscription that changed; nothing where that is too long for it, and then any may have changed;
ACCESS_CHANGED, which names no resource, where a credential or a policy did.
`broker_staged` says that a transaction of an application's has committed something (docs/decisions/0050).
A lost notification costs time, never a message: pulls also look for themselves.  So do all, where a database knows
neither: the function `tell_brokers` (migration 0057) does nothing there, and `listen` says so.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from psycopg import Notify, sql
from psycopg import errors as pg

from broker.domain.database_url import RELEASE_0_1_SCHEMA
from broker.store.driver import statements
from broker.store.driver.database import Connection, Database
from broker.store.driver.hot_connection import HotConnection
from broker.store.driver.postgres_errors import translate_errors

_WAKE, _RESOURCES, _STAGED = "broker_wake", "broker_resources", "broker_staged"
ACCESS_CHANGED = "access"
_MAX_PAYLOAD = 7900  # bytes; PostgreSQL refuses 8,000
_SILENCE_SECONDS = 5.0  # without a notification, after which the server is asked whether it is there
_ANSWER_SECONDS = 5.0

_NOTIFY_WAKE = statements.hot("notify_wake")


class NoNotifications(Exception):
    """The database has no LISTEN."""


@dataclass(frozen=True, slots=True)
class Wake:
    """What another process (or this one) says can be claimed now."""

    shard_ids: list[int] = field(default_factory=list)
    subscription_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    """A topic or subscription (None: any of them) was created, changed or deleted."""

    name: str | None


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """A credential or a policy has changed (store/access/version.py)."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction of an application's has, and something is staged (store/log/staged.py)."""


Announcement = Wake | ResourceChanged | AccessChanged | Committed


def _payloads(words: Iterable[str]) -> list[str]:
    payloads = [""]
    for word in words:
        if len(payloads[-1]) + len(word) >= _MAX_PAYLOAD:
            payloads.append("")
        payloads[-1] += f" {word}" if payloads[-1] else word
    return payloads


def _channel(name: str, schema: str) -> str:
    """Channels belong to a database.  In `public` they are as in release 0.1.0, which may work there as well."""
    return name if schema == RELEASE_0_1_SCHEMA else f"{name}.{schema}"


def resources_channel(schema: str) -> str:
    """Where changes are told, to be told in the transaction that makes them."""
    return _channel(_RESOURCES, schema)


async def notify_wake(
    connection: HotConnection, *, schema: str, shard_ids: Iterable[int], subscription_ids: Iterable[int]
) -> None:
    """Tell all processes what can be claimed; never part of another transaction (NOTIFY serialises commits)."""
    words = [f"s{shard_id}" for shard_id in shard_ids] + [f"r{id_}" for id_ in subscription_ids]
    for payload in _payloads(words):
        await connection.run((_NOTIFY_WAKE, {"channel": _channel(_WAKE, schema), "payload": payload}))


async def notify_resources_changed(connection: Connection, *, schema: str, names: Iterable[str]) -> None:
    """Tell all processes that topics or subscriptions changed, in one transaction however many they are."""
    payloads = [name if len(name.encode()) <= _MAX_PAYLOAD else "" for name in names]
    await connection.execute(
        "SELECT tell_brokers(%s, payload) FROM unnest(%s::text[]) AS changed (payload)",
        [resources_channel(schema), payloads],
    )


async def listen(
    database: Database, *, silence_seconds: float = _SILENCE_SECONDS, answer_seconds: float = _ANSWER_SECONDS
) -> AsyncIterator[Announcement | None]:
    """What other processes (and this one) announce; None first, once the connection listens.

    Raises a BrokerError when the connection is lost, or the server has been silent for both times: the caller
    listens anew, and must assume that it missed something.  Raises NoNotifications where that would not help.
    """
    connection = await database.dedicated_connection()
    with translate_errors():
        try:
            connection.patience = answer_seconds
            for name in (_WAKE, _RESOURCES, _STAGED):
                channel = sql.Identifier(_channel(name, database.schema))
                await _begin_to_hear(connection, sql.SQL("LISTEN {}").format(channel))
            yield None
            while True:
                async for notification in connection.notifies(timeout=silence_seconds):
                    yield _announcement(notification)
                await connection.execute(b"SELECT 1")
        finally:
            await connection.close()


async def _begin_to_hear(connection: Connection, command: sql.Composed) -> None:
    try:
        await connection.execute(command)
    except (pg.FeatureNotSupported, pg.SyntaxError) as error:
        raise NoNotifications(str(error)) from error


def _announcement(notification: Notify) -> Announcement:
    if notification.channel.startswith(_STAGED):
        return Committed()
    if notification.channel.startswith(_RESOURCES):
        if notification.payload == ACCESS_CHANGED:
            return AccessChanged()
        return ResourceChanged(notification.payload or None)
    return _parse_wake(notification.payload)


def _parse_wake(payload: str) -> Wake:
    wake = Wake()
    for word in payload.split():
        (wake.shard_ids if word[0] == "s" else wake.subscription_ids).append(int(word[1:]))
    return wake
