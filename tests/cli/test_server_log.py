"""Why PostgreSQL failed, as the broker reads it from its log."""

from pathlib import Path

from broker.embedded_postgres.server_log import ServerLog

_FULL = 'could not write to file "pg_wal/xlogtemp.77": No space left on device'


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
    assert log.reason() == f"PANIC: {_FULL}"
    assert [log.new_crash(), log.new_crash()] == [f"PANIC: {_FULL}", ""]
    log.mark()
    _write(path, _line("FATAL", 'could not write lock file "postmaster.pid": No space left on device'))
    assert log.reason() == 'FATAL: could not write lock file "postmaster.pid": No space left on device'


def test_without_a_failure_the_last_lines_are_told_and_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "postgres.log"
    log = ServerLog(path)
    log.mark()
    _write(path, _line("PANIC", "long ago"), *(_line("LOG", f"line {n} {'x' * 80}") for n in range(2_000)))
    _write(path, "one\n", "two\n", "three\n")
    assert log.reason() == "one / two / three"
