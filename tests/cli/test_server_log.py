"""Why PostgreSQL failed, as the broker reads it from its log."""

from pathlib import Path

import pytest

from broker.db.embedded import server_log
from broker.db.embedded.server_log import ServerLog

_FULL = 'could not write to file "pg_wal/xlogtemp.77": No space left on device'
_AGAIN = 'could not write lock file "postmaster.pid": No space left on device'


def _line(level: str, text: str) -> str:
    return f"2026-11-26 13:51:36.123 UTC [77] {level}:  {text}\n"


def _write(path: Path, *lines: str) -> None:
    with path.open("a") as log:
        log.writelines(lines)


def test_a_panic_is_the_reason_and_what_sessions_are_told_meanwhile_is_none(tmp_path: Path) -> None:
    path = tmp_path / "postgres.log"
    log = ServerLog(path)
    assert (log.reason(), log.new_crash()) == ("", "")
    _write(path, _line("PANIC", "of an earlier run"))
    log.mark()
    _write(path, _line("LOG", "starting"), _line("FATAL", "the database system is starting up"))
    _write(path, _line("PANIC", _FULL), _line("FATAL", "the database system is in recovery mode"))
    _write(path, _line("LOG", "startup process (PID 78) exited with exit code 1"))
    assert [log.new_crash(), log.new_crash()] == [f"PANIC: {_FULL}", ""]
    assert log.reason() == f"PANIC: {_FULL}"
    _write(path, *(_line("FATAL", "the database system is in recovery mode") for _ in range(10_000)))
    assert log.reason() == f"PANIC: {_FULL}", "however long it takes"
    log.mark()
    _write(path, _line("FATAL", _AGAIN))
    assert log.reason() == f"FATAL: {_AGAIN}"


def test_once_the_server_is_ready_what_failed_before_is_no_reason_any_more(tmp_path: Path) -> None:
    path = tmp_path / "postgres.log"
    log = ServerLog(path)
    _write(path, _line("PANIC", _FULL), _line("LOG", "database system is ready to accept connections"))
    _write(path, _line("FATAL", _AGAIN), "half a li")
    assert log.reason() == f"FATAL: {_AGAIN}"
    _write(
        path, "ne\n", _line("LOG", "database system is ready to accept connections"), "one\n", "two\n", "three\n"
    )
    assert log.reason() == "one / two / three"


def test_of_very_much_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_log, "_MOST_BYTES", 1_000)
    path = tmp_path / "postgres.log"
    log = ServerLog(path)
    _write(
        path, _line("PANIC", "long ago"), *(_line("LOG", f"line {n}") for n in range(100)), _line("PANIC", _FULL)
    )
    assert log.new_crash() == f"PANIC: {_FULL}"
