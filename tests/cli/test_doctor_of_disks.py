"""What `broker doctor` says of the disk of PostgreSQL."""

import shutil
from typing import NamedTuple

import psycopg
import pytest

from broker.features.inspect.fleet import database_checks
from broker.features.inspect.fleet.database_checks import inspect_database


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def _said(url: str) -> tuple[str, str, str]:
    [found] = [
        (state, found, command) for check, state, found, _, command in inspect_database(url) if check == "disk"
    ]
    return found


@pytest.mark.parametrize(("free", "state"), [(15, "ok"), (14, "warning"), (5, "warning"), (4, "error")])
def test_how_much_is_free_is_said_of_a_database_on_this_machine(
    database_url: str, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    asked: list[str] = []

    def usage(path: str) -> Usage:
        asked.append(path)
        return Usage(100 * 10**9, (100 - free) * 10**9, free * 10**9)

    monkeypatch.setattr(database_checks.shutil, "disk_usage", usage)
    said, found, command = _said(database_url)
    with psycopg.connect(database_url) as connection:
        [directory] = connection.execute("SHOW data_directory").fetchone() or ("",)
    assert (said, found) == (state, f"{free}.0 GB of 100.0 GB are free at {directory}")
    assert (asked, bool(command)) == ([directory], state != "ok")


def test_where_it_cannot_be_seen_the_doctor_says_so(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(path: str) -> Usage:
        raise FileNotFoundError(path)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert _said(database_url)[:2] == ("warning", "cannot be measured from here")


def test_where_the_role_may_not_read_the_directory_the_doctor_says_what_would_let_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database_url) as connection:
        settings = connection.execute("SELECT name FROM pg_settings WHERE name <> 'data_directory'").fetchall()
    monkeypatch.setattr("broker.db.schema.server_settings._SETTINGS", [name for [name] in settings])
    assert _said(database_url) == ("warning", "cannot be measured", "GRANT pg_read_all_settings TO the role")
