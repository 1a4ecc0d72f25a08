"""Commands as somebody types them: in this process if they can be; on a terminal of 80 columns or into a pipe."""

import fcntl
import io
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.cli.main import main
from broker.client.google_credentials import VARIABLE

_VARIABLES = ("BROKER_URL", "BROKER_PROJECT", "BROKER_CREDENTIALS", "BROKER_CONTEXT", VARIABLE)
IN_A_SHELL = "|(>"  # a line with one of these is no matter of one command: a shell runs it
_ERASED = re.compile(r"[^\n]*\r\x1b\[K")  # a bar that was shown for a while
_COLOURS = re.compile(r"\x1b\[[0-9;]*[mHJ]")


@dataclass
class Typed:
    """What came of a command: its exit code, and what it printed, both streams together."""

    code: int
    text: str


@dataclass
class Terminal:
    """`variables` are what a shell replaces ($ID), and what commands find in their environment."""

    variables: dict[str, str] = field(default_factory=dict)
    columns: int = 80

    def type(self, line: str, *, colours: bool = False) -> Typed:
        """On a terminal."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self.columns, 0, 0))
        read: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(ours, read))
        reader.start()
        with open(theirs, "w", encoding="utf-8") as screen:
            code = self._run(line, screen)
        reader.join()
        text = b"".join(read).decode().replace("\r\n", "\n")
        return Typed(code, text if colours else _COLOURS.sub("", _ERASED.sub("", text)))

    def pipe(self, line: str) -> Typed:
        """Where standard output is no terminal."""
        printed = io.StringIO()
        return Typed(self._run(line, printed), printed.getvalue())

    def _run(self, line: str, screen: io.TextIOBase | io.TextIOWrapper | io.StringIO) -> int:
        if any(sign in line for sign in IN_A_SHELL):
            return self._run_in_a_shell(line, screen)
        words = shlex.split(_replaced(line, self.variables))
        assert words[0] == "broker", line
        with redirect_stdout(screen), redirect_stderr(screen):  # type: ignore[type-var]
            code = main(words[1:])
            screen.flush()
        return code

    def _run_in_a_shell(self, line: str, screen: io.TextIOBase | io.TextIOWrapper | io.StringIO) -> int:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | self.variables | {"PATH": path}
        done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
        screen.write(done.stdout + done.stderr)
        screen.flush()
        return done.returncode


def _read_all(descriptor: int, read: list[bytes]) -> None:
    try:
        while part := os.read(descriptor, 65536):
            read.append(part)
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(descriptor)


def _replaced(line: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    return line


_STEADY: Sequence[tuple[str, str]] = (
    (r'("bucketDuration": )"[0-9.]+s"', r'\1"60s"'),
    (r"(?m) +$", ""),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "2026-11-23T10:00:00.000Z"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00", "2026-11-23T10:00:00.000+00:00"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-23 10:00:00"),
    (r"(?m)^\d\d:\d\d:\d\d", "10:00:00"),
    (r"(?m)^((?:billing|audit) +(?:[A-Z_]+ +)?)\d+s", r"\g<1>0s"),
    (r"\b\d{16,18}\b", "1000000000000001"),  # ids of messages
    (r"http://127\.0\.0\.1:\d{5}", "http://127.0.0.1:8085"),
    (r"operations/[0-9a-f]{20}", "operations/0123456789abcdef0123"),
    (r"(?m)^(operation +)?[0-9a-f]{20}", r"\g<1>0123456789abcdef0123"),
    (r"(ratePerSecond\"?:? +)[0-9.]+", r"\g<1>1"),
    (r'("undoSnapshot": "[^"]*/snapshots/)[^"]*', r"\g<1>undo"),
    (r"in \d+ ms", "in 1 ms"),
    (r"\b\d+\.\d+\.\d+\.dev[\w.+]+", "0.2.0"),
    (r"(?m)^((?:uniqueId|oauth2ClientId|uid) +)\S+", r"\g<1>…"),
    (r"(?m)^(\S+ +pull +\d+ +)\d+s +[0-9.]+", r"\g<1>1s     0.0"),  # a consumer
    (r"(?m)^(oldest\w+Age +)[0-9.]+s", r"\g<1>1s"),
    (r'("process": )"[^"]+"', r'\1"broker:1"'),
    (r'("acksPerSecond": )[0-9.]+', r"\g<1>0.0"),
    (r'("(?:oldestOutstandingMessageAge|ackLatencyP\d\d)": ")[0-9.]+s', r"\g<1>1s"),
    (r"\b[0-9a-f]{8}\b", "01234567"),  # revisions of schemas
    (r'"latency": "[0-9.]+s"', '"latency": "0.001s"'),
    (r"(?m)^(latency +)[0-9.]+s", r"\g<1>0.001s"),
    (r"(?m)^((?:publish|consume|latency)  ).*\d.*", r"\g<1>…"),
    (r'("(?:seconds|perSecond|p50Ms|p99Ms)": )[0-9.-]+', r"\g<1>1"),
    (r"\b[0-9a-f]{40}\b", "0123456789abcdef0123456789abcdef01234567"),  # ids of keys
    (r"\b[0-9a-f]{32}\b", "0123456789abcdef0123456789abcdef"),
    (r"\beyJ[\w-]+\.[\w.-]+", "eyJ…"),
    (r"\bbrk-[\w-]{43}", "brk-…"),
    (r"(/console/(?:link|shared))#[\w-]{43}", r"\1#…"),
    (r'("(?:uniqueId|oauth2ClientId|etag)": )"[^"]+"', r'\1"…"'),
    (r"(?m)^(etag +)[0-9a-f]{16}$", r"\1…"),
    (r'("expires_in": )\d+', r"\g<1>3600"),
    (r"test-[0-9a-f]{10}", "test-0123456789"),
    (r"status/200/[0-9a-f]{10}", "status/200/0123456789"),
    (r'("ackId": )"[^"]+"', r'\1"…"'),
    (r'("?oldestUndeliveredMessageAge"?: ")[0-9.]+s', r"\g<1>1s"),
)


def steady(text: str) -> str:
    """Without what is another in each run: times, ids, the project."""
    for pattern, replacement in _STEADY:
        text = re.sub(pattern, replacement, text)
    return text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    """Of a user who has no contexts yet."""
    for name in (*_VARIABLES, "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()
