"""Wake-ups between broker processes, by LISTEN and NOTIFY.

Each schema has its own channels.  Two have payloads, which are sealed (notification_seal.py).  `broker_wake`
carries what may be claimed now, as words: `s12` (shard 12 has new messages), `r7` (subscription 7 has redeliveries,
or another time for them).  `broker_resources` carries the name of a topic or subscription that changed; an empty
payload means that the name is too long, and that any may have changed.  The other two have no payload:
`broker_access` means that a credential or a policy has changed, `broker_outbox` that the transaction of an
application has committed rows (docs/decisions/0050).  Any role of the database can send these two.  Each costs a
process one query at most, and none while a query is in progress.

A lost notification delays messages but loses none, because pulls also poll.  All processes poll if the database
does not support notifications: the function `notify_brokers` (migration 0057) then does nothing, and `listen`
reports it.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from psycopg import Notify, sql
from psycopg import errors as pg

from broker.db.driver import statements
from broker.db.driver.database import Connection, Database
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.notification_seal import MAX_TEXT, NotificationSeal, read_seal
from broker.db.driver.postgres_errors import translate_errors

_WAKE, _RESOURCES, _OUTBOX, _ACCESS = "broker_wake", "broker_resources", "broker_outbox", "broker_access"
_SILENCE_SECONDS = 5.0  # without a notification, after which the connection is checked
_ANSWER_SECONDS = 5.0

_NOTIFY_WAKE = statements.hot("notify_wake")


class NoNotifications(Exception):
    """The database has no LISTEN."""


@dataclass(frozen=True, slots=True)
class Wake:
    """The announcement, by this or another process, that messages of shards or subscriptions can be claimed."""

    shard_ids: list[int] = field(default_factory=list)
    subscription_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    """A topic or subscription (None: any of them) was created, changed or deleted."""

    name: str | None


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """A credential or a policy has changed (access/versions/version_rows.py)."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction of an application's has, and something is in the outbox (features/outbox/rows.py)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A notification on this channel that no broker of the schema has sent."""

    channel: str


Announcement = Wake | ResourceChanged | AccessChanged | Committed | Unreadable


def _texts(words: Iterable[str]) -> list[str]:
    texts = [""]
    for word in words:
        if len(texts[-1]) + len(word) >= MAX_TEXT:
            texts.append("")
        texts[-1] += f" {word}" if texts[-1] else word
    return texts


def _channel(name: str, schema: str) -> str:
    """Channels belong to a database, and each schema has its own."""
    return f"{name}.{schema}"


def access_channel(schema: str) -> str:
    """Returns the channel on which changes of access are announced, in the transaction that makes them."""
    return _channel(_ACCESS, schema)


async def notify_wake(
    connection: HotConnection,
    *,
    schema: str,
    seal: NotificationSeal,
    shard_ids: Iterable[int],
    subscription_ids: Iterable[int],
) -> None:
    """Tell all processes what can be claimed; never part of another transaction (NOTIFY serialises commits)."""
    words = [f"s{shard_id}" for shard_id in shard_ids] + [f"r{id_}" for id_ in subscription_ids]
    channel = _channel(_WAKE, schema)
    for text in _texts(words):
        await connection.run((_NOTIFY_WAKE, {"channel": channel, "payload": seal.seal(channel, text)}))


async def notify_resources_changed(
    connection: Connection, *, schema: str, seal: NotificationSeal, names: Iterable[str]
) -> None:
    """Tell all processes that topics or subscriptions changed, in one transaction however many they are."""
    channel = _channel(_RESOURCES, schema)
    payloads = [seal.seal(channel, name if len(name.encode()) <= MAX_TEXT else "") for name in names]
    await connection.execute(
        "SELECT notify_brokers(%s, payload) FROM unnest(%s::text[]) AS changed (payload)", [channel, payloads]
    )


async def listen(
    database: Database, *, silence_seconds: float = _SILENCE_SECONDS, answer_seconds: float = _ANSWER_SECONDS
) -> AsyncIterator[Announcement | None]:
    """Yields the announcements of all processes; None first, once the connection listens.

    Raises a BrokerError when the connection is lost, or the server has been silent for both times: the caller
    listens anew, and must assume that it missed something.  Raises NoNotifications where that would not help.
    """
    connection = await database.dedicated_connection()
    with translate_errors():
        try:
            connection.patience = answer_seconds
            seal = await read_seal(connection)
            for name in (_WAKE, _RESOURCES, _OUTBOX, _ACCESS):
                channel = sql.Identifier(_channel(name, database.schema))
                await _begin_to_hear(connection, sql.SQL("LISTEN {}").format(channel))
            yield None
            while True:
                async for notification in connection.notifies(timeout=silence_seconds):
                    yield _announcement(notification, seal)
                await connection.execute(b"SELECT 1")
        finally:
            await connection.close()


async def _begin_to_hear(connection: Connection, command: sql.Composed) -> None:
    try:
        await connection.execute(command)
    except (pg.FeatureNotSupported, pg.SyntaxError) as error:
        raise NoNotifications(str(error)) from error


def _announcement(notification: Notify, seal: NotificationSeal) -> Announcement:
    channel, _, _ = notification.channel.partition(".")
    if channel == _OUTBOX:
        return Committed()
    if channel == _ACCESS:
        return AccessChanged()
    text = seal.open(notification.channel, notification.payload)
    if text is None:
        return Unreadable(channel)
    return ResourceChanged(text or None) if channel == _RESOURCES else _parse_wake(text)


def _parse_wake(text: str) -> Wake:
    wake = Wake()
    for word in text.split():
        (wake.shard_ids if word[0] == "s" else wake.subscription_ids).append(int(word[1:]))
    return wake
