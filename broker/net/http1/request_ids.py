"""Request ids for the log and the response: the caller's X-Request-Id, or a generated one."""

import re
import secrets
from itertools import count

HEADER = b"x-request-id"
_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,100}")  # no character that is special in a log, a header or a shell


class RequestIds:
    """Made of a prefix that no other process has, and a counter: an id costs no randomness and no clock."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(5).encode()
        self._next = count(1).__next__

    def make(self) -> bytes:
        return b"%b-%x" % (self._prefix, self._next())

    def of(self, given: bytes | None) -> bytes:
        """The caller's, if it is up to 100 letters, digits and ``._:/+=@-``; else one of ours."""
        return given if given and _SANE.fullmatch(given) else self.make()


def sane_id(given: bytes) -> bytes:
    """The caller's id as it is; b"": it will not do."""
    return given if _SANE.fullmatch(given) else b""
