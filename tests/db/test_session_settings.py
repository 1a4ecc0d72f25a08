"""What a session of the broker goes by is the broker's, whatever the role, the database and the URL are set to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import make_url

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.driver.database import Database
from broker.db.driver.statements import Statement
from broker.db.schema.schema_state import DatabaseUnreachable, inspect
from tests.cli.fake_postgres import answering_logins, refusal
from tests.fixtures.pooler import find_pgbouncer, pgbouncer, transaction_pool
from tests.fixtures.relay import relayed

# As an application may have it for itself, each of which would make the broker lose, refuse or misread something.
HOSTILE = {
    "search_path": "elsewhere,public",
    "synchronous_commit": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "lock_timeout": "1ms",
    "client_min_messages": "error",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "idle_session_timeout": "1ms",
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "timezone": "Asia/Tokyo",
}
NAMES = (*HOSTILE, "work_mem")
OURS = (
    *("broker", "on", "read committed", "off", "off", "0", "notice", "on", "off", "off", "on", "0"),
    *("ISO, DMY", "postgres", "hex", "UTC", "12345kB"),
)
_SHOW = "SELECT " + ", ".join(f"current_setting('{name}')" for name in NAMES)


@pytest.fixture
def hostile_url(database_url: str) -> str:
    """A database that is set to all of that for everybody; its URL says it again, and a harmless setting."""
    name = make_url(database_url).database
    with psycopg.connect(database_url, autocommit=True) as admin:
        for setting, value in HOSTILE.items():
            admin.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    options = " ".join(f"-c {setting}={value}" for setting, value in (HOSTILE | {"work_mem": "12345kB"}).items())
    plain, _, query = database_url.partition("?")
    query = "&".join(pair for pair in query.split("&") if not pair.startswith("options="))
    return f"{plain}?{query}&options={quote(options)}".replace("postgresql:", "postgresql+psycopg:")


@pytest.fixture
async def hostile(hostile_url: str) -> AsyncIterator[Database]:
    database = Database(hostile_url, pool_size=2)
    yield database
    await database.close()


async def test_each_way_to_a_connection_has_the_brokers_settings_and_the_callers_others(hostile: Database) -> None:
    async with hostile.hot() as hot:
        [[row]] = await hot.run((Statement(b"show", _SHOW.encode()), {}))
        assert row == OURS
    async with hostile.connection() as connection:
        assert await (await connection.execute(_SHOW.encode())).fetchone() == OURS
    async with hostile.transaction() as transaction:
        assert (await transaction.exec_driver_sql(_SHOW)).one() == OURS
    dedicated = await hostile.dedicated_connection()
    assert await (await dedicated.execute(_SHOW.encode())).fetchone() == OURS
    await dedicated.close()


def test_the_options_of_the_environment_count_where_the_url_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    assert connection_parameters("postgresql://h", schema="s")["options"].startswith("-c work_mem=1MB -c ")
    given = connection_parameters("postgresql://h?options=-cjit%3Don", schema="s")["options"]
    assert given.startswith("-cjit=on -c ")
    assert "work_mem" not in given


def test_a_pool_that_rejects_the_settings_is_refused_by_name() -> None:
    """As PgBouncer does unless it is configured otherwise; its words change with its version."""
    for words in (
        "unsupported startup parameter: options",
        "unsupported startup parameter in options: search_path",
    ):
        with (
            answering_logins(refusal("08P01", words)) as url,
            pytest.raises(DatabaseUnreachable, match=r"rejects the session settings .* give the URL of PostgreSQL"),
        ):
            inspect(url)


async def test_a_pool_in_between_that_drops_the_settings_is_refused_by_name(database_url: str) -> None:
    """As PgBouncer does with ignore_startup_parameters: the broker would look elsewhere for its tables."""
    async with relayed(database_url, startup=_without_options) as pool:
        with pytest.raises(DatabaseUnreachable, match=r"drops the session settings \(options\) of a connection"):
            await asyncio.to_thread(inspect, f"{pool.url}?sslmode=disable&gssencmode=disable")


async def test_a_pool_that_gives_each_transaction_another_session_is_refused_by_name(database_url: str) -> None:
    async with transaction_pool(database_url) as url:
        with pytest.raises(DatabaseUnreachable, match=r"gives each transaction another session of the server"):
            await asyncio.to_thread(inspect, url)


async def test_a_pool_whose_clients_keep_a_session_each_is_none_of_those(database_url: str) -> None:
    async with transaction_pool(database_url, kept=True) as url:
        await asyncio.to_thread(inspect, url)


@pytest.mark.skipif(find_pgbouncer() is None, reason="PgBouncer is not installed")
async def test_pgbouncer_is_refused_however_it_is_configured(database_url: str) -> None:
    transactions, drops = {"pool_mode": "transaction"}, {"ignore_startup_parameters": "options,extra_float_digits"}
    async with relayed(database_url) as server:

        def why(**config: str) -> str:
            with TemporaryDirectory() as directory, pgbouncer(server.url, Path(directory), **config) as url:
                with pytest.raises(DatabaseUnreachable) as refused:
                    inspect(url)
                return str(refused.value)

        assert "rejects the session settings" in await asyncio.to_thread(why)
        for mode in ("session", "transaction"):
            assert "drops the session settings" in await asyncio.to_thread(why, pool_mode=mode, **drops)
        with psycopg.connect(database_url, autocommit=True) as admin:  # as if it had kept the search path
            admin.execute(f"ALTER DATABASE {make_url(database_url).database} SET search_path = pg_catalog")
        for by_turns in ("0", "1"):
            said = await asyncio.to_thread(why, server_round_robin=by_turns, **transactions, **drops)
            assert "gives each transaction another session of the server" in said


def _without_options(packet: bytes) -> bytes:
    """The first packet of a session: its length, the protocol's version, names and values, an end."""
    pairs = packet[8:].split(b"\0")
    where = pairs.index(b"options")
    rest = packet[4:8] + b"\0".join(pairs[:where] + pairs[where + 2 :])
    return (len(rest) + 4).to_bytes(4) + rest


def test_how_the_database_is_reached_is_the_callers_to_say() -> None:
    given = connection_parameters("postgresql://h?connect_timeout=60&application_name=ours", schema="s")
    assert (given["connect_timeout"], given["application_name"], given["keepalives_idle"]) == ("60", "ours", 15)


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3cret@h/x?ssl=s3cret", "host=h s3cret", "password=a s3cret=b", "password='s3cret"]
)
def test_what_libpq_cannot_read_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="does not know") as refused:
        connection_parameters(url, schema="s")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__suppress_context__
