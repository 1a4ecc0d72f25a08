"""The migrations build the declared schema, and only that."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url, text

from broker.db.schema import migrations, schema_state
from broker.db.schema.tables import metadata
from tests.fixtures.database import in_schema

# SQLAlchemy cannot reflect it; the name of the column is compared all the same.
pytestmark = pytest.mark.filterwarnings("ignore:Did not recognize type 'jsonpath'")


def _differences(url: str) -> list[object]:
    engine = create_engine(make_url(in_schema(url)).set(drivername="postgresql+psycopg"))

    def declared(_object: object, name: str | None, type_: str, reflected: bool, _to: object) -> bool:
        return not (type_ == "table" and reflected and str(name).startswith("messages_"))

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_object": declared, "compare_server_default": True}
        )
        differences = compare_metadata(context, metadata)
    engine.dispose()
    return list(differences)


def test_migrating_an_empty_database_gives_the_declared_tables(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    assert _differences(empty_database_url) == []


def test_a_drift_would_be_seen(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    engine = create_engine(make_url(in_schema(empty_database_url)).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE cursors ADD COLUMN surplus int"))
    engine.dispose()
    assert len(_differences(empty_database_url)) == 1


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    migrations.upgrade(empty_database_url)
    assert schema_state.inspect(empty_database_url).revision == schema_state.head_revision()


def test_there_is_one_head_and_names_are_in_order() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    assert scripts.get_heads() == [schema_state.head_revision()]  # which is read from the files' names
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)


def test_an_empty_database_has_no_revision(empty_database_url: str) -> None:
    state = schema_state.inspect(empty_database_url)
    assert state.revision is None
    assert state.server_major_version >= 15
