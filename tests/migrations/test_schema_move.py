"""The tables of release 0.1.0 move from `public` to a schema of their own: all of them, or none."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from broker.store.driver.database import Database
from broker.store.log.partitions import list_partitions, make_partitions_ahead
from broker.store.schema import migrations, schema_state
from broker.store.schema.migration_waits import Patience
from broker.store.schema.revision_steps import SQL_FUNCTIONS
from broker.store.schema.schema_state import DatabaseUnreachable, head_revision
from broker.store.schema.tables import VIEWS, metadata

SHORT = Patience(lock_seconds=0.1, pause_seconds=0.1, total_seconds=0.1)

_OBJECTS = """
    SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s)
    UNION ALL
    SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%(schema)s)
    UNION ALL
    SELECT typname FROM pg_type WHERE typnamespace = to_regnamespace(%(schema)s)
    ORDER BY 1
"""


@pytest.fixture
async def old_url(empty_database_url: str) -> str:
    """A database as release 0.1.0 leaves it, with partitions, one of them detached; and an application's table."""
    migrations.upgrade(empty_database_url, schema="public")
    database = Database(empty_database_url, schema="public")
    async with database.connection() as connection:
        await make_partitions_ahead(connection, now=datetime.now(UTC) + timedelta(hours=1))
        partitions = await list_partitions(connection)
        assert len(partitions) > 2
        name = partitions[0].name
        await connection.execute(f"ALTER TABLE message_batches DETACH PARTITION {name}".encode())
        await connection.execute(b"CREATE TABLE deals (id bigint PRIMARY KEY)")
    await database.close()
    return empty_database_url


@pytest.fixture
def admin(old_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(old_url, autocommit=True) as admin:
        yield admin


def _objects(admin: psycopg.Connection, schema: str) -> list[str]:
    return [str(name) for (name,) in admin.execute(_OBJECTS.encode(), {"schema": schema}).fetchall()]


DEALS = ["_deals", "deals", "deals", "deals_pkey"]


async def test_everything_moves_and_what_is_not_the_brokers_stays(admin: psycopg.Connection, old_url: str) -> None:
    before = _objects(admin, "public")
    assert migrations.move_schema(old_url)
    assert _objects(admin, "public") == DEALS
    assert sorted(_objects(admin, "broker") + DEALS) == sorted(before)
    state = schema_state.inspect(old_url)
    assert (state.schema, state.revision, state.remark) == ("broker", head_revision(), "")
    assert not migrations.move_schema(old_url)


def test_what_is_declared_is_all_that_there_is(admin: psycopg.Connection) -> None:
    names = admin.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')"
        " AND relname !~ '^(messages|identities|records)_[0-9]' AND relname NOT IN ('deals', 'alembic_version')"
    )
    assert {name for (name,) in names} == {*metadata.tables, *VIEWS}
    functions = admin.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace").fetchall()
    assert {name for (name,) in functions} == set(SQL_FUNCTIONS)


def test_brokers_at_work_are_named_and_left_alone(admin: psycopg.Connection, old_url: str) -> None:
    before = _objects(admin, "public")
    admin.execute("INSERT INTO processes VALUES ('p', clock_timestamp())")
    with psycopg.connect(old_url, application_name="broker") as session:
        with pytest.raises(DatabaseUnreachable, match="at work on the schema public, 1 of them") as refused:
            migrations.move_schema(old_url)
        assert f"from this machine: sessions {session.info.backend_pid}" in str(refused.value)
    assert _objects(admin, "public") == before
    admin.execute("UPDATE processes SET seen_at = clock_timestamp() - interval '11 s'")
    assert migrations.move_schema(old_url)


def test_a_session_in_its_way_is_named_and_nothing_has_moved(admin: psycopg.Connection, old_url: str) -> None:
    before = _objects(admin, "public")
    with psycopg.connect(old_url, application_name="a report") as forgotten:
        forgotten.execute("SELECT FROM cursors")
        with pytest.raises(DatabaseUnreachable, match='"a report"'):
            migrations.move_schema(old_url, patience=SHORT)
    assert (_objects(admin, "public"), _objects(admin, "broker")) == (before, [])


def test_a_move_that_fails_half_way_leaves_everything(admin: psycopg.Connection, old_url: str) -> None:
    admin.execute("CREATE SCHEMA broker")
    admin.execute(
        "CREATE FUNCTION public.fail() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE '%unsettled%')"
        " THEN RAISE EXCEPTION 'no'; END IF; END $$"
    )
    admin.execute(
        "CREATE EVENT TRIGGER fails ON ddl_command_end WHEN TAG IN ('ALTER FUNCTION') EXECUTE FUNCTION fail()"
    )
    before = _objects(admin, "public")
    with pytest.raises(DatabaseUnreachable, match="no"):
        migrations.move_schema(old_url)
    assert (_objects(admin, "public"), _objects(admin, "broker")) == (before, [])
    admin.execute("DROP EVENT TRIGGER fails")
    assert migrations.move_schema(old_url)


def test_it_may_move_to_a_schema_of_the_operators_choice_but_not_onto_others(
    admin: psycopg.Connection, old_url: str
) -> None:
    admin.execute("CREATE SCHEMA broker CREATE TABLE broker.deals (id bigint)")
    with pytest.raises(DatabaseUnreachable, match=r"not the broker's \(deals\)"):
        migrations.move_schema(old_url)
    with pytest.raises(DatabaseUnreachable, match="public is where"):
        migrations.move_schema(old_url, schema="public")
    assert migrations.move_schema(old_url, schema="pubsub")
    assert schema_state.inspect(old_url, "pubsub").revision == head_revision()
