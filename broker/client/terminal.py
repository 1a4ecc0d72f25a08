"""The only module of the command line that writes to standard output and standard error.

Names, attributes, bodies and error messages are untrusted, and a terminal interprets control sequences: an escape
sequence may move the cursor, set the title or hide the rest of a line, and a bidirectional control changes the
visible order of the text.  So lines for people are always escaped.  Data for programs, such as JSON and exports, is
written unchanged to a pipe or a file, and escaped on a terminal.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

import click

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_STYLE = re.compile(r"[0-9]+(;[0-9]+)*")
_CLEAR_SCREEN = "\x1b[H\x1b[J"  # the cursor to the upper left corner, and everything after it erased
_ERASE_LINE = "\r\x1b[K"


class Span(NamedTuple):
    """Text that is escaped, in a style, which is not.  `style`: parameters of SGR such as "1;31"; "" for none."""

    text: str
    style: str = ""


def printable(text: str) -> str:
    """Escapes everything that is not printable, so that the text is one line and commands no terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _SHORT.get(one) or _escaped(one) for one in text)


def printable_json(text: str) -> str:
    """Escapes a JSON text as `printable` does, by escapes of JSON: it has the same value.  Its lines stay."""
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def write_line(text: str, *, error: bool = False) -> None:
    """Writes a line for people; `error`: to standard error."""
    write_spans([Span(text)], error=error)


def write_lines(text: str, *, error: bool = False) -> None:
    """Writes a text of the broker's own that has several lines."""
    for line in text.split("\n"):
        write_line(line, error=error)


def write_spans(spans: Iterable[Span], *, error: bool = False) -> None:
    """Writes a line for people whose parts may have styles."""
    _write("".join(map(_rendered, spans)) + "\n", error=error)


def write_json(text: str) -> None:
    """Writes a JSON text, and ends its line."""
    _write((printable_json(text) if is_terminal() else text) + "\n")


def write_script(text: str) -> None:
    """Writes a text for another program, such as YAML, and ends its last line."""
    text = text.removesuffix("\n")
    if is_terminal():
        write_lines(text)
    else:
        _write(text + "\n")


def write_json_line(line: bytes) -> None:
    """Writes a line of JSON with its end, byte by byte unless a terminal shows it."""
    if is_terminal():
        write_json(line.decode(errors="backslashreplace").rstrip("\r\n"))
    else:
        write_bytes(line)


def write_bytes(data: bytes) -> None:
    """Writes data that are no text.  The caller makes sure that no terminal shows them."""
    click.echo(data, nl=False)


def write_status(text: str) -> None:
    """Replaces the current line of a terminal on standard error, as a progress bar does."""
    _write(_ERASE_LINE + printable(text), error=True)


def erase_status() -> None:
    _write(_ERASE_LINE, error=True)


def clear_screen() -> None:
    _write(_CLEAR_SCREEN)


def ask(question: str) -> None:
    """Raises click.Abort unless the answer is yes."""
    click.confirm(printable(question), abort=True, err=True)


def is_terminal(*, error: bool = False) -> bool:
    return (sys.stderr if error else sys.stdout).isatty()


def columns() -> int:
    """Returns the width of standard output."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def has_blocks() -> bool:
    """Whether standard output can show block elements, of which charts are drawn."""
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def set_up_output() -> None:
    """Has characters that standard output cannot encode escaped, rather than raise."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Raises BrokenPipeError."""
    sys.stdout.flush()


def discard_output() -> None:
    """Drops all further output: nobody reads it, and the end of the program must not fail for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(text: str, *, error: bool = False) -> None:
    click.echo(text, nl=False, err=error, color=True)  # click would take colours out where it sees no terminal


def _rendered(span: Span) -> str:
    text = printable(span.text)
    if not span.style:
        return text
    if not _STYLE.fullmatch(span.style):
        raise ValueError(f"{span.style!r} is no style")
    return f"\x1b[{span.style}m{text}\x1b[0m"


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
