"""A migration waits shortly for each lock, lets others through, tries again, and says who is in its way."""

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psycopg
import pytest

from broker.db.schema import migrations, schema_state
from broker.db.schema.migration_lock import lock_migrations
from broker.db.schema.migration_waits import Patience
from broker.db.schema.schema_state import DatabaseUnreachable
from tests.db.migrations.revisions import ADD_COLUMNS, BUILD_INDEXES, made_up, with_revisions

PATIENT = Patience(lock_seconds=0.05, pause_seconds=0.1)
SHORT = Patience(lock_seconds=1.5, pause_seconds=0.1, total_seconds=0.1)  # gives up with the second try


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_lock_that_comes_free_lets_the_migration_go_on(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = with_revisions(tmp_path, ADD_COLUMNS)
    with psycopg.connect(database_url) as forgotten, caplog.at_level(logging.WARNING):
        forgotten.execute("SELECT FROM shards")
        migrating = threading.Thread(
            target=migrations.upgrade,
            args=(database_url,),
            kwargs={"directory": directory, "patience": PATIENT},
        )
        migrating.start()
        _wait_until(lambda: any("tries again" in record.message for record in caplog.records))
        assert migrating.is_alive()
        forgotten.rollback()
        migrating.join()
    assert schema_state.inspect(database_url).revision == made_up(1)


def test_it_gives_up_and_names_the_session(database_url: str, tmp_path: Path) -> None:
    directory = with_revisions(tmp_path, ADD_COLUMNS)
    with psycopg.connect(database_url, application_name="a report") as forgotten:
        forgotten.execute("SELECT FROM shards")
        with pytest.raises(DatabaseUnreachable) as caught:
            migrations.upgrade(database_url, directory=directory, patience=SHORT)
        held = f'session {forgotten.info.backend_pid} ("a report", its transaction open for '
        assert held in str(caught.value)
    assert schema_state.inspect(database_url).revision == schema_state.head_revision()


def test_of_two_that_start_at_once_one_waits_for_the_other(database_url: str, tmp_path: Path) -> None:
    directory = with_revisions(tmp_path, ADD_COLUMNS)
    with psycopg.connect(database_url, autocommit=True) as other, other.transaction():
        lock_migrations(other, "broker")
        with pytest.raises(DatabaseUnreachable, match="another process that migrates"):
            migrations.upgrade(database_url, directory=directory, patience=SHORT)
    migrations.upgrade(database_url, directory=directory, patience=SHORT)
    assert schema_state.inspect(database_url).revision == made_up(1)


def test_of_several_that_start_on_an_empty_database_at_once_one_migrates(empty_database_url: str) -> None:
    """The schema, and the table that they lock, are not there yet."""
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        starting = [pool.submit(migrations.upgrade, empty_database_url, patience=PATIENT) for _ in range(4)]
        assert {each.result() for each in starting} == {schema_state.head_revision()}
    assert schema_state.inspect(empty_database_url).revision == schema_state.head_revision()


def test_another_error_is_told_at_once(database_url: str, tmp_path: Path) -> None:
    directory = with_revisions(tmp_path, 'op.execute("SELECT 1 / 0")')
    with pytest.raises(DatabaseUnreachable, match="division by zero"):
        migrations.upgrade(database_url, directory=directory)


def test_each_revision_that_was_done_stays_done(database_url: str, tmp_path: Path) -> None:
    directory = with_revisions(tmp_path, ADD_COLUMNS, BUILD_INDEXES, 'op.execute("SELECT 1 / 0")')
    with pytest.raises(DatabaseUnreachable):
        migrations.upgrade(database_url, directory=directory)
    assert schema_state.inspect(database_url).revision == made_up(2)
