"""The format of log lines, and which lines of libraries are logged.

    2026-11-22T13:00:05.123Z WARNING worker-0[4242] broker.state: the database is away

One record is one line.  Text from outside (names, paths, answers, errors) may contain anything, so characters that
are not printable are written as escapes: it cannot start a line of its own or control the terminal that shows it.
Only the traceback of a defect has more lines, each with a marker of its own.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from logging.handlers import WatchedFileHandler
from time import gmtime
from typing import Any

_FIELDS = "fields"  # the attribute of a record that has them
_COLLECTIONS = {
    "topics": "topic",
    "subscriptions": "subscription",
    "snapshots": "snapshot",
    "schemas": "schema",
    "schedules": "schedule",
    "operations": "operation",
}

MAX_MESSAGE = 8_000  # characters; what is longer is cut
_TRACE = "    | "  # before each line of a traceback
_CREDENTIALS = re.compile(r"(://)[^\s/@]*@|(password=)\S+")  # of URLs, and of libpq's other spelling

# Libraries speak when they worry, those named here only when something is broken: what they say call by call the
# broker says once, with a reason (observability/state_changes.py).
_LIBRARIES = {"psycopg": logging.ERROR, "asyncio": logging.ERROR}
_NOTHING_NEW = ("Cancel %s running task(s), ",)  # uvicorn's, when the time of a stop is over: the worker says it


class LineFormatter(logging.Formatter):
    """A formatter of records as one physical line each, in UTC, with the process that wrote it."""

    def format(self, record: logging.LogRecord) -> str:
        where = f"{_process(record)}[{record.process}] {record.name}"
        line = f"{_time(record)} {record.levelname} {where}: {one_line(record.getMessage())}"
        if request_id := _request_id(record):
            line += f" [request {request_id}]"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        for text in (record.exc_text, self.formatStack(record.stack_info) if record.stack_info else None):
            if text:
                line += "".join(f"\n{_TRACE}{_escaped(each)}" for each in text.split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """A formatter of records as one JSON object each.

    It has the fields that Google's Cloud Logging reads (https://cloud.google.com/logging/docs/structured-logging),
    those of the record, and a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": _time(record),
            "severity": record.levelname,
            "process": f"{_process(record)}[{record.process}]",
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        if request_id := _request_id(record):
            line["request_id"] = request_id
        for name, value in getattr(record, _FIELDS, {}).items():
            line.setdefault(name, one_line(value) if isinstance(value, str) else value)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        texts = (record.exc_text, self.formatStack(record.stack_info) if record.stack_info else None)
        traces = [_escaped(each) for text in texts if text for each in text.split("\n")]
        return json.dumps(line | ({"stack_trace": "\n".join(traces)} if traces else {}), ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    time = gmtime(record.created)
    return (
        f"{time.tm_year:04}-{time.tm_mon:02}-{time.tm_mday:02}T{time.tm_hour:02}:{time.tm_min:02}:"
        f"{time.tm_sec:02}.{int(record.msecs):03}Z"
    )


def fields_of(*resources: str, **values: object) -> dict[str, object]:
    """Returns the fields of a line's JSON: resources by their full names, and other values.

    The project of a resource is a field too.  Empty values are left out, and so are names that are no resource's.
    """
    fields: dict[str, object] = {}
    for resource in resources:
        parts = resource.split("/")
        if len(parts) >= 2 and parts[0] == "projects":
            fields["project"] = parts[1]
            if len(parts) >= 4 and parts[2] in _COLLECTIONS:
                fields[_COLLECTIONS[parts[2]]] = "/".join(parts[:4])
    return fields | {name: value for name, value in values.items() if value not in (None, "", b"", ())}


def seconds_text(seconds: float) -> str:
    """A duration as fields have it, and as the API writes durations: "1.25s"."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def extra(fields: Mapping[str, object], request_id: bytes = b"") -> dict[str, Any]:
    """`extra` of a record with these fields; `request_id`: of the request that causes it, b"": none does."""
    made: dict[str, Any] = {_FIELDS: fields}
    return made | {"request_id": request_id.decode("ascii")} if request_id else made


def _request_id(record: logging.LogRecord) -> str:
    return getattr(record, "request_id", "")


def _process(record: logging.LogRecord) -> str | None:
    return "main" if record.processName == "MainProcess" else record.processName


def one_line(text: str) -> str:
    """`text` as it may stand in a log: printable, without credentials, of at most MAX_MESSAGE characters."""
    if len(text) > MAX_MESSAGE:
        text = f"{text[:MAX_MESSAGE]}… ({len(text)} characters)"
    return _escaped(text)


def reason(error: BaseException) -> str:
    """Why, in one line: what is behind an error that was made of another, with its kind where that says more."""
    cause = error.__cause__ or error
    cause = getattr(cause, "orig", None) or cause  # SQLAlchemy wraps what PostgreSQL said into words of its own
    first = str(cause).strip().partition("\n")[0].rstrip(" .;:")
    is_plain = type(cause).__module__ == "builtins" and not isinstance(cause, OSError)
    return f"{type(cause).__name__}: {first}" if is_plain or not first else first


def _escaped(text: str) -> str:
    if "://" in text or "password=" in text:
        text = _CREDENTIALS.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _NewRecords(logging.Filter):
    """A filter that leaves out the records of the broker itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_NOTHING_NEW)


_FORMATTERS: dict[str, type[logging.Formatter]] = {"text": LineFormatter, "json": JsonFormatter}


def open_access_log(where: str) -> logging.Logger | None:
    """The logger of calls' lines.  `where`: "off" (None), "on": beside the log; else a file, which may be moved
    away at any time.  Its lines look as those of the log.  Raises OSError.
    """
    if where == "off":
        return None
    access = logging.getLogger("broker.access")
    access.setLevel(logging.INFO)  # whatever else is logged
    if where != "on":
        handler = WatchedFileHandler(where, encoding="utf-8")
        own = [each.formatter for each in logging.getLogger().handlers if isinstance(each.formatter, JsonFormatter)]
        handler.setFormatter(own[0] if own else LineFormatter())
        access.handlers[:] = [handler]
        access.propagate = False
    return access


def set_up_log(level: str, format_: str = "text") -> None:
    """Write the log of this process to standard error.

    `level`: of the broker's own lines, "debug" to "error".  `format_`: "text" or "json".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMATTERS[format_]())
    handler.addFilter(_NewRecords())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger("broker").setLevel(own)
    for name, quiet in _LIBRARIES.items():
        logging.getLogger(name).setLevel(logging.WARNING if own <= logging.DEBUG else quiet)
    logging.captureWarnings(True)
