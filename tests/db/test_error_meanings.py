"""What callers are told when the database fails: what was seen, and nothing else."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import errors as pg

from broker.db.driver.database import Database
from broker.db.driver.postgres_errors import ALL_IN_USE, is_full, translate
from broker.model.errors import BrokerError, Internal, Unavailable, Unimplemented
from tests.fixtures.database import other_database


async def _said(url: str) -> str:
    """By both pools, of a database that cannot be connected to."""
    database = Database(url)
    try:
        with pytest.raises(Unavailable) as hot:
            await database.now()
        with pytest.raises(Unavailable) as other:  # the hot pool's reason, or its own
            async with database.connection():
                pass
        assert str(hot.value) == str(other.value)
        return str(hot.value)
    finally:
        await database.close()


async def test_each_way_in_which_a_connection_fails_is_named(database_url: str) -> None:
    reached = "The database cannot be reached; try again."
    assert await _said("postgresql://127.0.0.1:1/x") == reached
    assert await _said("postgresql://no-such-host.invalid/x") == reached
    assert await _said("postgresql://h@/x?host=/nonexistent") == reached
    refused = "The database does not let the broker in; the broker's log has its reason."
    assert await _said(database_url.replace("postgres@", "nobody_of_this_name@", 1)) == refused
    assert await _said(other_database(database_url, "no_such_database")) == refused


@pytest.fixture
async def only(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=1)
    yield database
    await database.close()


async def test_a_session_that_was_ended_and_a_pool_in_use_are_told_apart(
    only: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.db.driver.hot_pool.WAIT_SECONDS", 0.05)
    async with only.hot():
        with pytest.raises(Unavailable, match=ALL_IN_USE):
            await only.now()
    with pytest.raises(Unavailable) as ended:
        await _ended(only, database_url)
    assert str(ended.value) == "The database ended the connection; try again."


async def _ended(database: Database, url: str) -> None:
    async with database.connection() as connection:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        await connection.execute(b"SELECT 1")


async def test_a_statement_that_the_database_does_not_support_is_not_blamed_on_citus(database: Database) -> None:
    with pytest.raises(Unimplemented) as refused:
        await _run(database, b"SELECT count(DISTINCT 1) OVER ()")
    assert str(refused.value) == (
        "The database does not support a statement of the broker: DISTINCT is not implemented for window functions."
    )


async def test_a_right_that_is_missing_is_said_without_the_name_of_what_it_is_for(database: Database) -> None:
    with pytest.raises(Internal) as refused:
        await _run(database, b"SET ROLE pg_monitor", b"SELECT 1 FROM broker.topics")
    assert str(refused.value) == "The broker's role lacks a privilege in the database."


async def _run(database: Database, *statements: bytes) -> None:
    async with database.connection() as connection:
        for statement in statements:
            await connection.execute(statement)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('FATAL:  too many connections for role "app"', '(too many connections for role "app")'),
        ('FATAL:  too many connections for database "d"', '(too many connections for database "d")'),
        ("FATAL:  sorry, too many clients already", "(sorry, too many clients already)"),
        (
            "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
            "(remaining connection slots are reserved for roles with the SUPERUSER attribute)",
        ),
    ],
)
def test_a_limit_of_connections_is_quoted(text: str, said: str) -> None:
    error = psycopg.OperationalError(f'connection to server at "10.0.0.1", port 5432 failed: {text}')
    assert is_full(error)
    assert str(translate(error)) == f"The database has no connection left for the broker {said}; try again."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FATAL:  the database system is starting up", "The database is starting or shutting down; try again."),
        ('FATAL:  password authentication failed for user "s3cret"', "The database does not let the broker in; "),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "s3cret"', "The database does not let the broker"),
        ("session is read-only", "The database is a standby, or read-only; try again."),
        ("SSL error: certificate verify failed", "TLS to the database failed; "),
        ("connection timeout expired", "The database did not answer in time; try again."),
        ("the server is away: connection timeout expired", "The database did not answer in time; try again."),
        ("server closed the connection unexpectedly", "The connection to the database was lost; try again."),
        ("SSL SYSCALL error: EOF detected", "The connection to the database was lost; try again."),
        (
            "FATAL:  Eingabe s3cret",
            "The connection to the database failed, for a reason that the broker's log has; ",
        ),
    ],
)
def test_what_a_connection_says_is_classified_and_not_repeated(text: str, said: str) -> None:
    meant = str(translate(psycopg.OperationalError(text)))
    assert meant.startswith(said)
    assert "s3cret" not in meant


def test_a_fallback_says_that_it_is_one() -> None:
    meant: BrokerError = translate(pg.lookup("58030")("s3cret"))
    assert str(meant) == "The database failed (58030), for a reason that the broker's log has; try again."
    meant = translate(pg.lookup("42P01")("s3cret"))
    assert str(meant) == "The database refused a statement of the broker (42P01), whose log has the reason."
