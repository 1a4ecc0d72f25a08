"""A schema of two revisions, and what is published to its topic: messages like the one or the other, and some that
are like neither.

Avro in BINARY: lengths and numbers are zigzag bytes, here of one byte each, so messages are text as others are.
"""

import json
import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.faults.clients.rest import RestCaller

_SCHEMA = "shape"
_ID = {"name": "id", "type": "string"}
_NOTE = {"name": "note", "type": ["null", "string"], "default": None}
_NOTED = "\x02\x02x"  # the second of the union's types, of one letter
_BROKEN = 0.3  # of all requests


class Shaped(NamedTuple):
    """What to publish, and with which attributes it comes to receivers."""

    texts: list[str]
    attributes: dict[str, str]
    breaks: bool


class Shapes:
    """The schema, in a project."""

    def __init__(self, caller: RestCaller) -> None:
        self._caller = caller
        self._revisions: list[str] = []

    @property
    def settings(self) -> dict[str, str]:
        """Of a topic."""
        return {"schema": f"{self._caller.project}/schemas/{_SCHEMA}", "encoding": "BINARY"}

    async def create(self) -> None:
        body = {"type": "AVRO", "definition": _record(_ID)}
        await self._caller.do("POST", f"schemas?schemaId={_SCHEMA}", body, fine=[409])
        first = await self._caller.do("GET", f"schemas/{_SCHEMA}")
        body["definition"] = _record(_ID, _NOTE)
        second = await self._caller.do("POST", f"schemas/{_SCHEMA}:commit", {"schema": body})
        self._revisions = [str(made["revisionId"]) for made in (first, second)]

    async def delete(self) -> None:
        await self._caller.do("DELETE", f"schemas/{_SCHEMA}", fine=[404])

    def shaped(self, texts: Sequence[str], dice: random.Random) -> Shaped:
        """Messages with these ids, shorter than 64 letters."""
        revision = dice.randrange(2)
        written = [_string(text) + _NOTED * revision for text in texts]
        if breaks := dice.random() < _BROKEN:
            place = dice.randrange(len(written))
            written[place] = dice.choice(
                (written[place] + "?", f"\x7e{texts[place]}")
            )  # goes on, or ends too early
        reported = {
            "googclient_schemaname": self.settings["schema"],
            "googclient_schemaencoding": self.settings["encoding"],
            "googclient_schemarevisionid": self._revisions[revision],
        }
        return Shaped(written, reported, breaks)


def _record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Shape", "fields": fields})


def _string(text: str) -> str:
    return chr(2 * len(text)) + text
