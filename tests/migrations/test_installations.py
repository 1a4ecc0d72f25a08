"""The broker finds its own tables in a database that others use too, and says what else is there."""

from collections.abc import Iterator

import psycopg
import pytest

from broker.store.schema import migrations, schema_state
from broker.store.schema.schema_state import DatabaseUnreachable, head_revision
from tests.fixtures.database import in_schema

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
    admin.execute(f"DROP ROLE IF EXISTS {name}".encode())
    admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    return url.replace("//postgres@", f"//{name}@")


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


def test_what_release_0_1_0_made_is_found_where_it_is(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url, schema="public")
    state = schema_state.inspect(empty_database_url)
    assert (state.schema, state.revision) == ("public", head_revision())
    assert "`broker migrate --move-schema`" in state.remark
    migrations.upgrade(empty_database_url)
    assert schema_state.inspect(empty_database_url) == state
    assert schema_state.inspect(empty_database_url, "broker").revision is None


def test_a_database_with_both_wants_to_be_told_which(empty_database_url: str) -> None:
    for schema in ("public", "broker"):
        migrations.upgrade(empty_database_url, schema=schema)
    assert "twice, in the schemas broker and public" in _refusal(empty_database_url)
    assert schema_state.inspect(empty_database_url, "public").remark.startswith(
        "Tables of another broker are in: broker"
    )
    with pytest.raises(DatabaseUnreachable, match="the schema broker has tables of a broker already"):
        migrations.move_schema(empty_database_url)


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
    with pytest.raises(DatabaseUnreachable, match="CREATE SCHEMA broker AUTHORIZATION narrow"):
        migrations.upgrade(url)
    admin.execute("CREATE SCHEMA broker")
    with pytest.raises(DatabaseUnreachable, match="ALTER SCHEMA broker OWNER TO narrow"):
        migrations.upgrade(url)
    admin.execute("ALTER SCHEMA broker OWNER TO narrow")
    assert migrations.upgrade(url) == head_revision()
    other = _role(admin, empty_database_url, name="another")
    with pytest.raises(DatabaseUnreachable, match="belong to the role narrow, and another is not a member"):
        schema_state.inspect(other)
    admin.execute("DROP OWNED BY narrow")
    admin.execute("DROP ROLE narrow, another")


def test_several_brokers_have_schemas_of_their_own(empty_database_url: str) -> None:
    for schema in ("one", "two"):
        migrations.upgrade(empty_database_url, schema=schema)
        with psycopg.connect(in_schema(empty_database_url, schema)) as session:
            assert session.execute("SELECT version_num FROM alembic_version").fetchone() == (head_revision(),)
    assert (
        schema_state.inspect(empty_database_url).remark
        == "Tables of another broker are in: one, two (--database-schema)."
    )
