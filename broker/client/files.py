"""Reads files that a command line names, up to a limit: a name may refer to a device without an end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from broker.client.stop import Misuse
from broker.model.errors import os_reason

MAX_TEXT_BYTES = 10_000_000  # of a file of declarations, transforms or a schema
MAX_KEY_BYTES = 1_000_000  # of a file with a key, or with contexts


@contextmanager
def open_file(file: str, option: str) -> Iterator[BufferedReader]:
    """Opens a file, or standard input for "-".  Raises Misuse, also for what cannot be read within the block."""
    try:
        with cast(BufferedReader, sys.stdin.buffer) if file == "-" else _opened(file, option) as opened:
            yield opened
    except OSError as error:
        raise Misuse(f"{option} {file}: {os_reason(error)}") from None


def _opened(file: str, option: str) -> BufferedReader:
    try:
        return Path(file).open("rb")
    except ValueError as error:  # such as a name with a NUL
        raise Misuse(f"{option} {file!r}: {error}") from None


def read_bytes(file: str, option: str, *, most: int = MAX_TEXT_BYTES) -> bytes:
    """Reads a whole file; "-" is standard input.  Raises Misuse."""
    with open_file(file, option) as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise Misuse(f"{option} {file} has more than {most:,} bytes")
    return content


def read_text(file: str, option: str, *, most: int = MAX_TEXT_BYTES) -> str:
    """Reads a whole file, which is UTF-8.  Raises Misuse."""
    content = read_bytes(file, option, most=most)
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Misuse(f"{file} line {line}: the byte {content[error.start]:#04x} is not UTF-8") from None


def read_lines(opened: BinaryIO, where: str, *, most: int) -> Iterator[bytes]:
    """Reads the lines of a file, with their ends.  Raises Misuse for one that is longer than `most` bytes."""
    number = 0
    while line := opened.readline(most + 1):
        number += 1
        if len(line) > most:
            raise Misuse(f"{where} line {number}: it has more than {most:,} bytes")
        yield line
