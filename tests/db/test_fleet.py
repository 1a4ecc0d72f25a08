"""How many connections all brokers need, beside what the database allows: what `broker doctor` says."""

import psycopg
import pytest
from sqlalchemy import make_url

from broker.app.config import AppConfig, connections_of_a_process
from broker.app.settings.fields import Settings
from broker.core.context.running_processes import RunningProcesses
from broker.db.driver.database import Database
from broker.db.schema.fleet import BY_DEFAULT, SPARE, read_fleet
from broker.features.inspect.fleet.database_checks import inspect_database
from tests.core.context.test_running_processes import SetClock

_INSERT = (
    "INSERT INTO broker.processes (process_id, seen_at, version, database_connections)"
    " VALUES (%s, now() - %s::interval, '0001_baseline', %s)"
)


@pytest.fixture
def allowed(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        [most, reserved] = [
            sum(
                int(value)
                for (value,) in connection.execute("SELECT setting FROM pg_settings WHERE name ~ %s", [name])
            )
            for name in ("^max_connections$", "reserved_connections$")
        ]
        return most - reserved


def _said(url: str) -> list[tuple[str, str, str]]:
    return [
        (state, found, command) for check, state, found, _, command in inspect_database(url) if check == "fleet"
    ]


def test_the_processes_that_run_are_counted_with_their_connections(database_url: str, allowed: int) -> None:
    assert _said(database_url) == [
        ("ok", f"no broker was seen in the last 10 s; {allowed} connections are theirs at the most", "")
    ]
    with psycopg.connect(database_url) as connection:
        for row in (("a", "0 s", 26), ("b", "1 s", 18), ("gone", "1 minute", 100)):
            connection.execute(_INSERT, row)
    found = read_fleet(database_url, "broker")
    assert (found.processes, found.connections, found.allowed) == (2, 26 + 18, allowed)
    assert _said(database_url) == [("ok", f"2 processes may open 44 connections; {allowed} are allowed", "")]


@pytest.mark.parametrize(("beyond", "state"), [(1 - SPARE, "warning"), (1, "error")])
def test_what_max_connections_must_be_is_said(database_url: str, allowed: int, beyond: int, state: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(_INSERT, ("a", "0 s", allowed + beyond))
        [(most,)] = connection.execute("SELECT setting::int FROM pg_settings WHERE name = 'max_connections'")
    [(said, found, command)] = _said(database_url)
    assert (said, found) == (state, f"1 process may open {allowed + beyond} connections; {allowed} are allowed")
    assert command == f"raise max_connections to {most + beyond + SPARE}, or lower --pool-size"


def test_the_limit_of_a_role_counts_where_it_is_the_least(database_url: str) -> None:
    role = f"limited_{make_url(database_url).database}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(_INSERT, ("a", "0 s", 18))
        admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 20")
        try:
            admin.execute(f"GRANT USAGE ON SCHEMA broker TO {role}")
            admin.execute(f"GRANT SELECT ON broker.processes TO {role}")
            url = database_url.replace("postgres@", f"{role}@", 1)
            found = read_fleet(url, "broker")
            assert (found.bound, found.allowed) == (f"CONNECTION LIMIT of the role {role}", 20)
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_limit_below_what_one_process_opens_is_found_before_any_runs(database_url: str) -> None:
    name = make_url(database_url).database
    role = f"narrow_{name}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE postgres CONNECTION LIMIT 4")
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
        try:
            [(state, _, command)] = _said(database_url.replace("postgres@", f"{role}@", 1))
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert state == "error"
    assert command.startswith(f"raise CONNECTION LIMIT of the role {role} to at least 18,")


def test_the_default_of_a_process_is_what_the_settings_say() -> None:
    assert connections_of_a_process(Settings().pool_size) == BY_DEFAULT


async def test_a_process_says_how_many_it_opens(database: Database) -> None:
    config = AppConfig(database_url=database.url, pool_size=30)
    clock = SetClock(await database.now())
    running = RunningProcesses(
        database,
        clock,
        changed=lambda: None,
        poll=lambda: None,
        database_connections=config.database_connections,
    )
    await running.run_once()
    async with database.connection() as connection:
        rows = await (await connection.execute(b"SELECT database_connections FROM processes")).fetchall()
    assert rows == [(40,)]
