"""`broker migrate`, and `broker serve` on a PostgreSQL of the operator's own."""

import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg

from broker.store.migrations import head_revision
from tests.cli.processes import complaint, run_broker
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.database import other_database

StartBroker = Callable[..., BrokerProcess]
ANY_PORT = {"BROKER_PORT": "0"}


def test_migrate_brings_an_empty_database_up_and_serve_uses_it(
    start_broker: StartBroker, empty_database_url: str
) -> None:
    for _ in range(2):  # the second time there is nothing to do
        done = run_broker("migrate", env={"DATABASE_URL": empty_database_url})
        assert (done.returncode, done.stdout) == (0, f"The schema is at {head_revision()}.\n"), done.stderr
    broker = start_broker("--port", "0", env={"DATABASE_URL": empty_database_url})
    assert httpx.get(f"{broker.url}/readyz").status_code == 200


def test_serve_refuses_a_database_without_the_schema(empty_database_url: str) -> None:
    said = complaint("serve", "--database-url", empty_database_url, "--port", "0")
    assert said == f"the database's schema is at nothing, {head_revision()} is needed: run `broker migrate`"


def _set_revision(url: str, revision: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])


def test_serve_refuses_a_database_that_is_behind(database_url: str) -> None:
    _set_revision(database_url, "0000")
    said = complaint("serve", "--database-url", database_url, "--port", "0")
    assert said == f"the database's schema is at 0000, {head_revision()} is needed: run `broker migrate`"


def test_serve_and_migrate_refuse_a_database_from_the_future(database_url: str) -> None:
    _set_revision(database_url, "9999")
    said = complaint("serve", "--database-url", database_url, "--port", "0")
    assert said == f"the database's schema is at 9999, too new for this broker, which knows {head_revision()}"
    assert "9999" in complaint("migrate", "--database-url", database_url)


def test_serve_and_migrate_leave_a_newer_schema_that_only_adds(
    start_broker: StartBroker, database_url: str
) -> None:
    _set_revision(database_url, f"9999_since_{head_revision()[:4]}")
    done = run_broker("migrate", env={"DATABASE_URL": database_url})
    assert (done.returncode, done.stdout) == (0, f"The schema is at 9999_since_{head_revision()[:4]}.\n")
    broker = start_broker("--port", "0", env={"DATABASE_URL": database_url})
    assert httpx.get(f"{broker.url}/readyz").status_code == 200
    _set_revision(database_url, "9999")
    answer = httpx.get(f"{broker.url}/readyz")
    assert (answer.status_code, answer.json()["reason"][-4:]) == (503, f"{head_revision()[-3:]}.")


def test_an_unreachable_database_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as bound:  # bound, not listening: nobody else can answer there
        bound.bind(("127.0.0.1", 0))
        url = f"postgresql://user:secret@127.0.0.1:{bound.getsockname()[1]}/db"
        for command in ("serve", "migrate"):
            said = complaint(command, "--database-url", url, env=ANY_PORT)
            assert "Connection refused" in said
            assert "secret" not in said


def test_a_database_that_does_not_exist_is_said_in_one_line(server_url: str) -> None:
    url = other_database(server_url, "no_such_database")
    for command in ("serve", "migrate"):
        assert 'database "no_such_database" does not exist' in complaint(
            command, "--database-url", url, env=ANY_PORT
        )


def test_a_url_that_is_none_is_said_in_one_line() -> None:
    for command in ("serve", "migrate"):
        complaint(command, "--database-url", "postgresql//nonsense", code=2)
        complaint(command, "--database-url", "mysql://localhost/broker", code=2)


def test_migrate_without_a_database_says_what_it_needs() -> None:
    assert complaint("migrate", code=2).startswith("migrate needs --database-url or DATABASE_URL")


def test_a_user_without_rights_is_told_so(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS powerless")
        admin.execute("CREATE ROLE powerless LOGIN")
        said = complaint("migrate", "--database-url", empty_database_url.replace("//postgres@", "//powerless@"))
        admin.execute("DROP ROLE powerless")
    assert "permission denied" in said
