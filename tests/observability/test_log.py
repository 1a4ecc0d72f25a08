"""What a line of the log looks like, and that nobody can write one but the broker."""

import json
import logging
import re
import subprocess
import sys

import pytest

from broker.observability.log import JsonFormatter, LineFormatter, extra, fields_of, seconds_text

_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \S+\[\d+\] [\w.]+: [^\n]*", re.ASCII
)


def _formatted(message: str, *arguments: object, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("broker.part", logging.WARNING, __file__, 1, message, arguments, info)
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    ("forged", "written"),
    [
        ("a\nFAKE", r"a\nFAKE"),
        ("a\r\nFAKE", r"a\r\nFAKE"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x85\u2028\u2029\x0b\x0c", r"\x85\u2028\u2029\x0b\x0c"),
        ("\u202eright to left", r"\u202eright to left"),
        ("\ud800", r"\ud800"),
        ("Grüße, 東京", "Grüße, 東京"),
    ],
)
def test_a_message_is_one_line_of_printable_characters_whatever_is_in_it(forged: str, written: str) -> None:
    line = _formatted("the path %s", forged)
    assert _LINE.fullmatch(line)
    assert line.endswith(f": the path {written}")
    assert len(line.splitlines()) == 1


def test_in_json_a_record_is_one_object_and_a_traceback_a_field_of_it() -> None:
    try:
        raise ValueError("no\nFAKE")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("broker.part", logging.ERROR, __file__, 1, "a fault in %s", ("a\nb",), info)
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    written = json.loads(line)
    assert (written["severity"], written["logger"], written["message"]) == (
        "ERROR",
        "broker.part",
        r"a fault in a\nb",
    )
    assert written["timestamp"].endswith("Z")
    assert written["process"].startswith("main[")
    assert written["stack_trace"].startswith("Traceback")


def test_a_traceback_has_lines_of_its_own_that_cannot_be_taken_for_others() -> None:
    fake = "2026-11-22T13:00:05.123Z ERROR main[1] broker.part: all is lost"
    try:
        raise ValueError(f"no\n{fake}\r{fake}")
    except ValueError as error:
        first, *others = _formatted("a fault", error=error).splitlines()
    assert _LINE.fullmatch(first)
    assert others[0] == "    | Traceback (most recent call last):"
    assert all(line.startswith("    | ") for line in others)
    assert f"    | {fake}\\r{fake}" in others


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("postgresql://me:secret@host/db", "postgresql://***@host/db"),
        ("https://token@host/x and http://a:b@c", "https://***@host/x and http://***@c"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
    ],
)
def test_passwords_are_left_out(said: str, written: str) -> None:
    assert _formatted("cannot use %s", said).endswith(f": cannot use {written}")
    assert "secret" not in _formatted("a fault", error=ValueError(said))


def test_a_very_long_message_is_cut() -> None:
    assert len(_formatted("x" * 1_000_000)) < 9_000


_WRITE = """
import logging, warnings
from broker.observability.log import set_up_log
set_up_log({level!r})
for name in ("broker.part", "psycopg.pool", "uvicorn.error", "asyncio", "alembic.runtime", "hpack"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger(name).log(level, "said")
logging.getLogger("uvicorn.error").error("Cancel %s running task(s), timeout graceful shutdown exceeded", 2)
warnings.warn("beware")
"""


def _written(level: str) -> list[str]:
    program = [sys.executable, "-c", _WRITE.format(level=level)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stderr.splitlines()
    assert all(_LINE.fullmatch(line) for line in lines), lines
    return [" ".join((line.split()[1], line.split()[3].rstrip(":"))) for line in lines]


def test_libraries_write_the_same_lines_and_only_what_an_operator_can_use() -> None:
    assert _written("info") == [
        "INFO broker.part",
        "WARNING broker.part",
        "ERROR broker.part",
        "ERROR psycopg.pool",
        "WARNING uvicorn.error",
        "ERROR uvicorn.error",
        "ERROR asyncio",
        "WARNING alembic.runtime",
        "ERROR alembic.runtime",
        "WARNING hpack",
        "ERROR hpack",
        "WARNING py.warnings",
    ]


def test_debug_is_the_broker_s_own_and_lets_libraries_warn() -> None:
    written = _written("debug")
    assert "DEBUG broker.part" in written
    assert "WARNING psycopg.pool" in written
    assert [line for line in written if line.startswith(("DEBUG", "INFO")) and "broker" not in line] == []


def test_in_json_fields_stand_beside_the_sentence_and_in_text_only_the_sentence() -> None:
    record = logging.LogRecord("broker.part", logging.INFO, __file__, 1, "%s is purged", ("t",), None)
    forged = {
        "severity": "DEBUG",
        "message": "forged",
        "reason": "a\nFAKE of postgresql://me:secret@host/db",
        "count": 3,
    }
    fields = fields_of("projects/p/topics/t", message_id="7", **forged)
    record.__dict__.update(extra(fields, b"req-1"))
    written = json.loads(JsonFormatter().format(record))
    assert (written["severity"], written["message"]) == ("INFO", "t is purged")
    assert written["reason"] == r"a\nFAKE of postgresql://***@host/db"
    assert {name: written[name] for name in ("project", "topic", "message_id", "count", "request_id")} == {
        "project": "p",
        "topic": "projects/p/topics/t",
        "message_id": "7",
        "count": 3,
        "request_id": "req-1",
    }
    assert LineFormatter().format(record).endswith("broker.part: t is purged [request req-1]")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("projects/p", {"project": "p"}),
        ("projects/p/subscriptions/s", {"project": "p", "subscription": "projects/p/subscriptions/s"}),
        ("projects/p/topics/t/messages/7", {"project": "p", "topic": "projects/p/topics/t"}),
        ("projects/p/apiKeys/k", {"project": "p"}),
        ("retention_janitor", {}),
        ("", {}),
    ],
)
def test_the_fields_of_a_resource_are_told_by_its_name(name: str, fields: dict[str, str]) -> None:
    assert fields_of(name) == fields


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (1.25, "1.25s"), (0.0000014, "0.000001s"), (3600.0, "3600s")]
)
def test_a_duration_is_written_as_the_api_writes_durations(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
