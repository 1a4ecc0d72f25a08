"""`broker migrate`, and `broker serve` on a PostgreSQL of the operator's own."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from broker.db.schema.schema_state import head_revision
from tests.cli.processes import complaint, faults, is_ready, run_broker
from tests.db.migrations.test_installations import APPLICATION
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, text

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


def test_migrate_brings_an_empty_database_up_and_serve_uses_it(
    start_broker: StartBroker, empty_database_url: str
) -> None:
    for _ in range(2):  # the second time there is nothing to do
        done = run_broker("migrate", env={"DATABASE_URL": empty_database_url})
        assert (done.returncode, done.stdout) == (0, f"The schema broker is at {head_revision()}.\n"), done.stderr
    with_password = re.sub("//([^:@]*)@", r"//\1:s3cret@", empty_database_url)
    broker = start_broker("--port", "0", env={"DATABASE_URL": with_password})
    assert any(line.startswith("broker ") and ":***@" in line for line in broker.log)
    assert not any("s3cret" in line for line in broker.log)
    assert httpx.get(f"{broker.url}/readyz").status_code == 200


def test_serve_refuses_a_database_without_the_schema(empty_database_url: str) -> None:
    said = complaint("serve", "--database-url", empty_database_url, "--port", "0")
    assert said == f"the database's schema is at nothing, {head_revision()} is needed: run `broker migrate`"


def _set_revision(url: str, revision: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])


def test_serve_refuses_a_database_that_is_behind(database_url: str) -> None:
    _set_revision(database_url, "0000_min_0000")
    said = complaint("serve", "--database-url", database_url, "--port", "0")
    assert said == f"the database's schema is at 0000_min_0000, {head_revision()} is needed: run `broker migrate`"


def test_serve_and_migrate_refuse_a_database_from_the_future(database_url: str) -> None:
    _set_revision(database_url, "9999_min_9999")
    said = complaint("serve", "--database-url", database_url, "--port", "0")
    assert said == (
        f"the database's schema is at 9999_min_9999, too new for this broker, which knows {head_revision()}"
    )
    assert "9999_min_9999" in complaint("migrate", "--database-url", database_url)


def test_a_schema_of_a_build_before_the_first_release_is_refused_with_what_to_do(database_url: str) -> None:
    _set_revision(database_url, "0078_since_0001")
    for command in (("serve", "--port", "0"), ("migrate",)):
        said = complaint(*command, "--database-url", database_url)
        assert (
            "the database's schema is at 0078_since_0001, which a build from before the first release made" in said
        )
        assert "use an empty database, or another --database-schema" in said


def test_serve_and_migrate_leave_a_newer_schema_that_only_adds(
    start_broker: StartBroker, database_url: str
) -> None:
    _set_revision(database_url, f"9999_min_{head_revision()[:4]}")
    done = run_broker("migrate", env={"DATABASE_URL": database_url})
    assert (done.returncode, done.stdout) == (0, f"The schema broker is at 9999_min_{head_revision()[:4]}.\n")
    broker = start_broker("--port", "0", env={"DATABASE_URL": database_url})
    assert httpx.get(f"{broker.url}/readyz").status_code == 200
    _set_revision(database_url, "9999_min_9999")
    answer = httpx.get(f"{broker.url}/readyz")
    assert (answer.status_code, answer.json()["reason"][-4:]) == (503, f"{head_revision()[-3:]}.")


def test_nodes_for_hot_statements_are_refused_where_there_are_none(database_url: str) -> None:
    nodes = ("--hot-database-url", database_url, "--port", "0")
    said = complaint("serve", "--database-url", database_url, *nodes)
    assert "those of the schema broker do not: leave it out, or run `broker migrate --distribute`" in said
    assert "--hot-database-url needs --database-url" in complaint("serve", *nodes, code=2)
    said = complaint("doctor", "--url", "http://127.0.0.1:9", *nodes[:2], code=2)
    assert "--hot-database-url needs --database-url" in said


def test_a_parameter_that_is_none_is_refused_without_its_value() -> None:
    url = "postgresql://user:secret@127.0.0.1:1/db?ssl=secret"
    for command in ("serve", "migrate"):
        said = complaint(command, "--database-url", url, env={"BROKER_PORT": "0"}, code=2)
        assert said.endswith("a parameter that PostgreSQL does not know: ssl")
        assert "secret" not in said


async def _exchange(broker: BrokerProcess, data: str, project: str = "projects/p") -> None:
    """A message goes through the broker, on a topic that is made when there is none."""
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, project)
        await rest.create_topic()
        await rest.create_subscription()
        await rest.publish(data)
        assert [text(received) for received in await rest.drain()] == [data]


@pytest.mark.timeout(300)
async def test_an_application_and_two_brokers_share_a_database(
    start_broker: StartBroker, empty_database_url: str
) -> None:
    """Its role and its database have a search path, it has tables and versions of its own, and its URL options."""
    name = make_url(empty_database_url).database
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute(APPLICATION)
        admin.execute("DROP ROLE IF EXISTS application")
        admin.execute("CREATE ROLE application LOGIN")
        admin.execute("ALTER ROLE application SET search_path = shop, public")
        admin.execute(f"ALTER DATABASE {name} SET search_path = public, shop".encode())
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO application".encode())
    url = empty_database_url.replace("//postgres@", "//application@").replace("postgresql:", "postgresql+psycopg:")
    url += "&options=-csearch_path%3Dpublic"
    brokers = []
    for schema in ("broker", "second"):
        given = ("--database-url", url, *(("--database-schema", schema) if schema == "second" else ()))
        done = run_broker("migrate", *given)
        assert (done.returncode, done.stdout.startswith(f"The schema {schema} is at ")) == (0, True), done.stderr
        brokers.append(start_broker(*given, "--port", "0"))
    for broker, data in zip(brokers, ("to one", "to the other"), strict=True):
        await _exchange(broker, data)  # of the same names
        assert is_ready(broker)
        assert faults(broker) == []
    with psycopg.connect(empty_database_url) as admin:
        assert admin.execute("SELECT version_num FROM public.alembic_version").fetchall() == [("4f1c9e",)]
        there = admin.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        assert there.fetchone() == (4,)  # three tables and an index
    for broker in brokers:
        broker.stop()
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute("DROP OWNED BY application")
        admin.execute("DROP ROLE application")


async def test_times_are_the_same_whatever_the_environment_tells_libpq(
    start_broker: StartBroker, empty_database_url: str
) -> None:
    env = {"DATABASE_URL": empty_database_url, "PGTZ": "Asia/Tokyo", "PGDATESTYLE": "SQL, DMY", "PGGEQO": "off"}
    env |= {"PGOPTIONS": "-c timezone=Asia/Tokyo -c datestyle=SQL"}
    assert run_broker("migrate", env=env).returncode == 0
    broker = start_broker("--port", "0", env=env)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        await rest.create_subscription()
        before = datetime.now(UTC) - timedelta(minutes=5)  # an hour is the least that a zone would shift
        await rest.publish("now")
        [received] = await rest.pull()
        assert before < datetime.fromisoformat(received["message"]["publishTime"]) < before + timedelta(minutes=30)
    assert faults(broker) == []
