"""The rows of sessions of the console, and of links that begin one."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from broker.access.principals.caller import Caller
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.schema.tables import console_sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session or a link: the caller that began it, as its credential proved it, and its times."""

    member: str
    members: frozenset[str]
    credential: str
    signed_by: str
    used_at: datetime
    expires_at: datetime

    @property
    def caller(self) -> Caller:
        """The caller without the grants of its credential."""
        return Caller(self.member, self.members, self.credential, signed_by=self.signed_by)


async def insert_session(
    connection: ResourceConnection,
    *,
    digest: bytes,
    caller: Caller,
    is_link: bool,
    now: datetime,
    expires_at: datetime,
    most: int,
) -> None:
    """Inserts a session or a link, and deletes the principal's oldest ones beyond `most`."""
    table = console_sessions
    newest = (
        select(table.c.digest)
        .where(table.c.member == caller.member)
        .order_by(table.c.created_at.desc(), table.c.digest)
    )
    await connection.execute(delete(table).where(table.c.digest.in_(newest.offset(most - 1))))
    values = {
        "digest": digest,
        "is_link": is_link,
        "member": caller.member,
        "members": sorted(caller.members),
        "credential": caller.credential,
        "signed_by": caller.signed_by,
        "until": caller.until,
        "created_at": now,
        "used_at": now,
        "expires_at": expires_at,
    }
    await connection.execute(insert(table).values(values))


async def begin_session_of_link(
    connection: ResourceConnection, *, link: bytes, session: bytes, now: datetime, lasts: timedelta
) -> SessionRow | None:
    """Turns a link into a session.  Returns None if there is no such link.

    One statement does both, so that of two requests with the same link the second finds none.
    """
    table = console_sessions
    statement = (
        update(table)
        .where(table.c.digest == link, table.c.is_link, table.c.expires_at > now)
        .values(
            digest=session,
            is_link=False,
            created_at=now,
            used_at=now,
            expires_at=func.least(table.c.until, now + lasts),  # ignores a null
        )
    )
    row = (await connection.execute(statement.returning(*table.columns))).one_or_none()
    return None if row is None else _session(row)


async def find_session(connection: ResourceConnection, *, digest: bytes) -> SessionRow | None:
    """Returns a session, whether it has ended or not."""
    table = console_sessions
    query = select(table).where(table.c.digest == digest, table.c.is_link.is_(False))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _session(row)


async def note_use(connection: ResourceConnection, *, digest: bytes, now: datetime) -> None:
    await connection.execute(
        update(console_sessions).where(console_sessions.c.digest == digest).values(used_at=now)
    )


async def delete_session(connection: ResourceConnection, *, digest: bytes) -> None:
    await connection.execute(delete(console_sessions).where(console_sessions.c.digest == digest))


async def delete_ended_sessions(connection: Connection, *, now: datetime) -> None:
    """Deletes sessions and links that have expired."""
    await connection.execute(b"DELETE FROM console_sessions WHERE expires_at < %s", [now])


def _session(row: Any) -> SessionRow:
    return SessionRow(
        member=row.member,
        members=frozenset(row.members),
        credential=row.credential,
        signed_by=row.signed_by,
        used_at=row.used_at,
        expires_at=row.expires_at,
    )
