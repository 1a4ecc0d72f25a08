"""The environment that a broker is started in, as services, shells and mounted secrets make it."""

import os
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import pq
from sqlalchemy import make_url

from broker.app.process_environment import forget_postgresql_variables, tidy_environment
from broker.db.driver.connection_parameters import connection_parameters
from tests.cli.processes import complaint, is_ready, run_broker
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, text

StartBroker = Callable[..., BrokerProcess]

# Of libpq, as it lists them itself, and of initdb and the server.  192.0.2.1 is nobody's (RFC 5737).
_OF_LIBPQ = {default.envvar.decode() for default in pq.Conninfo.get_defaults() if default.envvar}
_HOSTILE = dict.fromkeys(_OF_LIBPQ, "hostile") | {
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGSSLMODE": "require",
    "PGSERVICE": "any",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGOPTIONS": "-c search_path=elsewhere",
    "PGCLIENTENCODING": "LATIN1",
    "PGDATA": "/nonexistent",
    "PGSYSCONFDIR": "/nonexistent",
    "PGTZ": "Asia/Tokyo",
    "PGDATESTYLE": "SQL, DMY",
    "LC_ALL": "tr_TR.ISO-8859-9",
    "TZ": "Asia/Tokyo",
}


@pytest.mark.slow
@pytest.mark.ci
async def test_the_embedded_database_is_reached_whatever_the_environment_tells_postgresql(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data, "--port", "0", env=_HOSTILE)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic("orders")
        await rest.create_subscription(topic="orders")
        await rest.publish("ğ", topic="orders")
        assert [text(received) for received in await rest.drain()] == ["ğ"]
    assert is_ready(broker)
    asked = ("psql", "--no-psqlrc", "-At", "-c", "SELECT name, current_setting('timezone') FROM topics")
    for is_running in (True, False):
        if not is_running:
            assert broker.stop() == 0
        done = run_broker("database", *data, *asked, env=_HOSTILE)
        assert (done.returncode, done.stdout) == (0, "projects/p/topics/orders|UTC\n"), done.stderr


def test_no_variable_of_libpq_is_left_for_an_embedded_database(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _OF_LIBPQ:
        monkeypatch.setenv(name, "x")
    forget_postgresql_variables()
    assert not _OF_LIBPQ & set(os.environ)


def test_a_host_of_the_url_is_not_replaced_by_an_address_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    assert connection_parameters("postgresql://database/x", schema="s")["hostaddr"] == ""
    given = connection_parameters("postgresql://database/x?hostaddr=10.0.0.1", schema="s")
    assert given["hostaddr"] == "10.0.0.1"


def test_values_of_mounted_secrets_are_trimmed_for_everything_that_reads_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "DATABASE_URL": "postgresql:///db\r\n",
        "BROKER_CREDENTIALS": " key.json\n",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318\n",
        "GOOGLE_APPLICATION_CREDENTIALS": "key.json\n",
    }
    for name, value in (given | {"OTHER": " x "}).items():
        monkeypatch.setenv(name, value)
    tidy_environment()
    assert {name: os.environ[name] for name in given} == {name: value.strip() for name, value in given.items()}
    assert os.environ["OTHER"] == " x "


@pytest.mark.slow
@pytest.mark.ci
async def test_a_database_url_may_end_in_a_newline(start_broker: StartBroker, database_url: str) -> None:
    for _given in ({"DATABASE_URL": f"{database_url}\n"}, {"BROKER_DATABASE_URL": f" {database_url}\r\n"}):
        done = run_broker("migrate", env=_given)
        assert done.returncode == 0, done.stderr
    assert is_ready(start_broker("--port", "0", "--database-url", f"{database_url}\n"))


def test_a_database_url_with_a_line_break_inside_is_refused_by_name() -> None:
    said = complaint("migrate", env={"DATABASE_URL": "postgresql://u:s3cret\n@h/db"}, code=2)
    assert said.startswith("DATABASE_URL must be a URL such as ")
    assert "a space or control character that is not escaped" in said
    assert "s3cret" not in said


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.one_server("the limit of a role holds on the coordinator alone")
def test_a_broker_does_not_start_on_fewer_connections_than_its_processes_open(database_url: str) -> None:
    role = f"limited_{make_url(database_url).database}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE postgres CONNECTION LIMIT 35".encode())
        admin.execute(f"GRANT CREATE ON DATABASE {make_url(database_url).database} TO {role}".encode())
        url = database_url.replace("postgres@", f"{role}@", 1)
        try:
            said = complaint("serve", "--database-url", url, "--port", "0", "--workers", "2")
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    assert said == (
        "the broker's processes open up to 36 connections to the database, and CONNECTION LIMIT of the role "
        f"{role} = 35 allows 35: raise it to at least 36, or lower --pool-size or --workers"
    )
