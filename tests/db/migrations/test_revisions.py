"""The names of revisions, and the SQL functions that they install."""

from importlib.resources import files
from pathlib import Path

import psycopg
from alembic.script import ScriptDirectory

from broker.db.schema import migrations
from broker.db.schema.installations import VERSION_TABLE
from broker.db.schema.revision_steps import SQL_FUNCTIONS
from broker.db.schema.tables import VIEWS, metadata
from broker.db.schema_revision import can_be_served
from tests.db.migrations.revisions import with_revisions

_RELATIONS = """
    SELECT relname FROM pg_class WHERE relnamespace = 'broker'::regnamespace AND relkind IN ('r', 'p', 'v')
"""
_FUNCTIONS = "SELECT proname FROM pg_proc WHERE pronamespace = 'broker'::regnamespace"


def _names(session: psycopg.Connection, query: str) -> set[str]:
    return {name for (name,) in session.execute(query.encode())}


def test_each_revision_can_be_served_by_the_code_of_the_one_before() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    for script in scripts.walk_revisions():
        assert script.down_revision is None or can_be_served(script.revision, str(script.down_revision))
        assert Path(script.path).stem.startswith(script.revision)


def test_what_is_declared_is_all_that_there_is(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as session:
        assert _names(session, _RELATIONS) == {*metadata.tables, *VIEWS, VERSION_TABLE}
        assert _names(session, _FUNCTIONS) == set(SQL_FUNCTIONS)
    written = {path.name for path in files("broker.db.schema").joinpath("functions").iterdir()}
    assert written == {f"{name}.sql" for name in SQL_FUNCTIONS}


def test_a_revision_installs_a_function_by_its_name(database_url: str, tmp_path: Path) -> None:
    change = 'op.execute("DROP FUNCTION try_lock")'
    install = 'install_functions("try_lock", "unsettled")'
    with psycopg.connect(database_url) as session:
        migrations.upgrade(database_url, directory=with_revisions(tmp_path / "one", change))
        assert "try_lock" not in _names(session, _FUNCTIONS)
        session.commit()
        migrations.upgrade(database_url, directory=with_revisions(tmp_path / "two", change, install))
        assert _names(session, _FUNCTIONS) == set(SQL_FUNCTIONS)
