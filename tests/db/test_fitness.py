"""A database in which a broker could not work is refused before anything is served, with the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from broker.cli.server.schema import check_schema
from broker.client.stop import Stop
from broker.db.schema import migrations, schema_state
from broker.db.schema.fitness import ConnectionBound
from broker.db.schema.schema_state import DatabaseUnfit, head_revision
from broker.features.inspect.fleet.database_checks import inspect_database
from broker.features.inspect.fleet.finding import ERROR
from tests.fixtures.database import other_database

pytestmark = pytest.mark.one_server("Citus has one encoding, and limits of its own")


@contextmanager
def _database_in(server_url: str, encoding: str) -> Iterator[str]:
    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        for each in (name, f"{name}_utf8"):
            admin.execute(f"DROP DATABASE IF EXISTS {each}".encode())
        admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
        try:
            yield other_database(server_url, name)
        finally:
            for each in (name, f"{name}_utf8"):
                admin.execute(f"DROP DATABASE IF EXISTS {each}".encode())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_in_another_encoding_is_refused_and_the_one_of_the_remedy_is_not(
    server_url: str, encoding: str
) -> None:
    with _database_in(server_url, encoding) as url:
        with pytest.raises(DatabaseUnfit, match=f"has the encoding {encoding}, .*the broker needs UTF8") as refused:
            schema_state.inspect(url)
        with pytest.raises(DatabaseUnfit, match=encoding):
            migrations.upgrade(url)
        with pytest.raises(Stop, match=encoding):
            check_schema(url, "")
        [found] = inspect_database(url)
        assert (found.check, found.state, found.command) == ("database", ERROR, "")
        assert encoding in found.why
        statement = str(refused.value).split("`")[1]
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(statement.encode())
            made = statement.split()[2]
        assert migrations.upgrade(other_database(url, made)) == head_revision()


def test_a_limit_below_what_the_processes_open_is_refused_with_its_name_and_the_least_that_will_do(
    database_url: str,
) -> None:
    name = make_url(database_url).database
    assert name is not None
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE limited_{name} LOGIN IN ROLE postgres CONNECTION LIMIT 17".encode())
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO limited_{name}".encode())
        try:
            url = database_url.replace("postgres@", f"limited_{name}@", 1)
            with pytest.raises(Stop) as refused:
                check_schema(url, "", connections=18)
            assert str(refused.value) == (
                "the broker's processes open up to 18 connections to the database, and CONNECTION LIMIT of the "
                f"role limited_{name} = 17 allows 17: raise it to at least 18, or lower --pool-size or --workers"
            )
            assert check_schema(url, "", connections=17).schema == "broker"
            admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 5".encode())
            with pytest.raises(Stop, match=f"CONNECTION LIMIT of the database {name} = 5 allows 5"):
                check_schema(url, "", connections=17)
        finally:
            admin.execute(f"DROP OWNED BY limited_{name}; DROP ROLE limited_{name}".encode())


def test_what_a_server_reserves_is_added_to_the_least() -> None:
    bound = ConnectionBound("max_connections", 100, 97)
    assert bound.shortfall(97) == ""
    assert bound.shortfall(98).endswith(
        "max_connections = 100 allows 97: raise it to at least 101, or lower --pool-size or --workers"
    )


def test_a_role_whose_transactions_end_early_is_refused(database_url: str) -> None:
    name = make_url(database_url).database
    with psycopg.connect(database_url, autocommit=True) as admin:
        if admin.info.server_version < 170_000:
            pytest.skip("PostgreSQL has transaction_timeout from 17 on")
        alter = sql.SQL("ALTER DATABASE {} SET transaction_timeout = {}")
        for given, is_refused in (("500ms", True), ("1h", False), ("0", False)):
            admin.execute(alter.format(sql.Identifier(str(name)), sql.Literal(given)))
            if is_refused:
                with pytest.raises(
                    DatabaseUnfit, match=r"transaction_timeout is 0\.5 s .* SET transaction_timeout = 0"
                ):
                    schema_state.inspect(database_url)
            else:
                schema_state.inspect(database_url)


def test_settings_that_would_end_a_look_or_a_migration_are_overridden(empty_database_url: str) -> None:
    name = make_url(empty_database_url).database
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        for setting in ("statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"):
            admin.execute(f"ALTER DATABASE {name} SET {setting} = '1ms'".encode())
    assert migrations.upgrade(empty_database_url) == head_revision()
    assert schema_state.inspect(empty_database_url).revision == head_revision()
