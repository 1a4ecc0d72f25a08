"""The broker finds its own tables in a database that others use too, and says what else is there."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from broker.db.schema import migrations, schema_state
from broker.db.schema.schema_state import DatabaseUnreachable, head_revision
from broker.features.outbox.application_functions import CannotGrant, grant
from tests.fixtures.database import in_schema, other_database

# What an application has in `public`: names that are the broker's as well, and a version table of its own.
APPLICATION = """
    CREATE TABLE topics (title text);
    CREATE TABLE messages (body text);
    CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY);
    INSERT INTO alembic_version VALUES ('4f1c9e');
"""


@pytest.fixture
def admin(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        yield admin


def _refusal(url: str, schema: str = "") -> str:
    with pytest.raises(DatabaseUnreachable) as refused:
        migrations.upgrade(url, schema=schema)
    with pytest.raises(DatabaseUnreachable) as inspected:
        schema_state.inspect(url, schema)
    assert str(inspected.value).partition(": ")[2] in str(refused.value)
    return str(refused.value)


def _role(admin: psycopg.Connection, url: str, *, name: str) -> str:
    admin.execute(f'DROP ROLE IF EXISTS "{name}"'.encode())
    admin.execute(f'CREATE ROLE "{name}" LOGIN'.encode())
    return url.replace("//postgres@", f"//{name}@")


def _remedy(said: object) -> bytes:
    """The statement that a refusal tells somebody to run."""
    return str(said).split("`")[1].encode()


def test_an_application_keeps_its_tables_and_its_versions(
    admin: psycopg.Connection, empty_database_url: str
) -> None:
    admin.execute(APPLICATION)
    assert schema_state.inspect(empty_database_url).revision is None
    migrations.upgrade(empty_database_url)
    state = schema_state.inspect(empty_database_url)
    assert (state.schema, state.revision, state.remark) == ("broker", head_revision(), "")
    assert admin.execute("SELECT version_num FROM public.alembic_version").fetchall() == [("4f1c9e",)]
    tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
    assert tables == [("alembic_version",), ("messages",), ("topics",)]


def test_a_schema_with_tables_of_others_is_left_alone(admin: psycopg.Connection, empty_database_url: str) -> None:
    admin.execute(APPLICATION)
    said = _refusal(empty_database_url, "public")
    assert "the schema public has a version table that is not the broker's (alembic_version, at 4f1c9e)" in said
    admin.execute("DROP TABLE alembic_version")
    assert "the schema public has tables that are not the broker's (messages, topics)" in _refusal(
        empty_database_url, "public"
    )
    admin.execute("CREATE SCHEMA broker CREATE VIEW broker.deals AS SELECT 1 AS one")
    assert "the schema broker has tables that are not the broker's (deals)" in _refusal(empty_database_url)
    assert "--database-schema" in said


def test_a_start_that_was_cut_short_is_no_stranger(admin: psycopg.Connection, empty_database_url: str) -> None:
    admin.execute("CREATE SCHEMA broker CREATE TABLE broker.alembic_version (version_num varchar(32) PRIMARY KEY)")
    assert migrations.upgrade(empty_database_url) == head_revision()


def test_rights_that_are_missing_are_named_with_who_can_give_them(
    admin: psycopg.Connection, empty_database_url: str
) -> None:
    url = _role(admin, empty_database_url, name="narrow")
    with pytest.raises(DatabaseUnreachable, match="may not make the schema broker"):
        migrations.upgrade(url)
    admin.execute("CREATE SCHEMA broker")
    with pytest.raises(DatabaseUnreachable) as refused:
        migrations.upgrade(url)
    admin.execute(_remedy(refused.value))
    assert migrations.upgrade(url) == head_revision()
    other = _role(admin, empty_database_url, name="another")
    with pytest.raises(DatabaseUnreachable, match="belong to the role narrow, and another is not a member"):
        schema_state.inspect(other)
    admin.execute("DROP OWNED BY narrow")
    admin.execute("DROP ROLE narrow, another")


def test_what_an_ordinary_owner_is_told_to_run_is_enough_once_for_the_broker_and_its_functions(
    admin: psycopg.Connection, empty_database_url: str
) -> None:
    """An owner who is no superuser may not make a schema for a role that it is not a member of."""
    owner_url = _role(admin, empty_database_url, name="ordinary_owner")
    url = _role(admin, empty_database_url, name="broker-role")
    _role(admin, empty_database_url, name="application_role")
    database = f"my-{admin.info.dbname}"
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER ordinary_owner").format(sql.Identifier(database)))
    url, owner_url = other_database(url, database), other_database(owner_url, database)
    try:
        with pytest.raises(DatabaseUnreachable) as refused:
            migrations.upgrade(url)
        remedy = _remedy(refused.value)
        assert remedy == f'GRANT CREATE ON DATABASE "{database}" TO "broker-role"'.encode()
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(remedy)
        assert migrations.upgrade(url) == head_revision()
        grant(url, schema="broker", role="application_role", project="projects/p")
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(f'REVOKE CREATE ON DATABASE "{database}" FROM "broker-role"'.encode())
        with pytest.raises(CannotGrant) as no_schema:
            grant(url, schema="broker", role="application_role", project="projects/p", functions="others")
        assert _remedy(no_schema.value) == remedy
    finally:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))
        admin.execute('DROP ROLE ordinary_owner, "broker-role", application_role')


def test_a_table_that_belongs_to_somebody_else_is_named(admin: psycopg.Connection, empty_database_url: str) -> None:
    """As a restore by two roles leaves it."""
    admin.execute("CREATE SCHEMA broker")
    url = _role(admin, empty_database_url, name="narrow")
    admin.execute("GRANT USAGE, CREATE ON SCHEMA broker TO narrow")
    migrations.upgrade(url)
    admin.execute("ALTER TABLE broker.topics OWNER TO postgres")
    said = _refusal(url)
    assert "broker.topics belongs to the role postgres, and narrow is not a member of it" in said
    admin.execute(_remedy(said))
    assert schema_state.inspect(url).revision == head_revision()
    admin.execute("DROP OWNED BY narrow")
    admin.execute("DROP ROLE narrow")


def test_several_brokers_have_schemas_of_their_own(empty_database_url: str) -> None:
    for schema in ("one", "two"):
        migrations.upgrade(empty_database_url, schema=schema)
        with psycopg.connect(in_schema(empty_database_url, schema)) as session:
            assert session.execute("SELECT version_num FROM alembic_version").fetchone() == (head_revision(),)
    assert (
        schema_state.inspect(empty_database_url).remark
        == "Tables of another broker are in: one, two (--database-schema)."
    )
