"""Writes files with keys so that only their user can read them."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_private_file(path: Path, text: str) -> None:
    """Writes a file in one piece or not at all; only its owner can ever read it.  Raises OSError.

    The file is on the disk when this returns, with its name: what is encrypted with a key must not outlive it.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
