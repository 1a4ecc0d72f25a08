"""The cause of a dead letter: its reason and the response of the endpoint, without what differs between messages.

The last attempt of a push writes both into the column `failure` of its messages, from where the forwarder copies
them into the record of the dead letter.
"""

import re
from hashlib import sha256
from typing import NamedTuple

MAX_RESPONSE = 200  # characters of a normalised response

_BETWEEN = "\n"  # reason and response, in the column `failure`
_TOKEN = re.compile(r"[\w.:@+\[\]-]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_KINDS = (
    ("{time}", re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")),
    ("{time}", re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?")),
    ("{address}", re.compile(r"[\w.+-]+@[\w.-]+")),
    ("{address}", re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?")),
    ("{address}", re.compile(r"\[[0-9a-f:]+\](?::\d+)?", re.IGNORECASE)),
    ("{address}", re.compile(r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}", re.IGNORECASE)),
    ("{id}", re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)),
    ("{id}", re.compile(r"(?=[a-f-]*[0-9])(?=[0-9-]*[a-f])[0-9a-f-]{8,}", re.IGNORECASE)),
    ("{id}", re.compile(r"(?=(?:[A-Za-z_-]*[0-9]){3})(?=[0-9_-]*[A-Za-z])[\w-]{12,}", re.ASCII)),
)


class FailureCause(NamedTuple):
    """`reason`: one of those in model/dead_letter.py.  `response`: normalised; "" if no endpoint has answered."""

    reason: str
    response: str = ""

    @property
    def fingerprint(self) -> str:
        """The same 16 hexadecimal digits for the same cause, in every project and version of the broker."""
        return sha256(f"{self.reason}{_BETWEEN}{self.response}".encode()).hexdigest()[:16]

    @property
    def stored(self) -> str:
        return f"{self.reason}{_BETWEEN}{self.response}" if self.response else self.reason


def stored_cause(failure: str) -> FailureCause:
    """Returns the cause that the column `failure` has."""
    reason, _, response = failure.partition(_BETWEEN)
    return FailureCause(reason, response)


def normalised_response(text: str) -> str:
    """Replaces numbers, ids, addresses and times of a response by their kinds, and cuts it at MAX_RESPONSE."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return _TOKEN.sub(_replaced, " ".join(printable.split()))[:MAX_RESPONSE]


def _replaced(match: re.Match[str]) -> str:
    token = match[0]
    core = token.strip(".:-") or token
    before, _, after = token.partition(core)
    for kind, pattern in _KINDS:
        if pattern.fullmatch(core):
            return f"{before}{kind}{after}"
    return _NUMBER.sub("{number}", token)
