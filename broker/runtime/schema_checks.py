"""Whether what is published is as its topic's schema says, and by which revision (A11).

Revisions never change, so that each is compiled once in a process.  Messages that take little to read are read
here, a few milliseconds at a time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from time import perf_counter

import msgspec

from broker.domain.errors import InvalidArgument, NotFound
from broker.domain.message import NewMessage
from broker.domain.schema import Schema, SchemaSettings, within
from broker.payload_schemas.compiled import CompiledSchema, compile_schema
from broker.payload_schemas.mismatch import Mismatch
from broker.runtime.resource_cache import ResourceCache

MAX_COMPILED = 200  # of 300 KB at most, which compiled are some MB
_AT_ONCE_SECONDS = 0.005  # then others have their turn


class SchemaChecks:
    """One for a process."""

    def __init__(self, resources: ResourceCache) -> None:
        self._resources = resources
        self._compiled: OrderedDict[int, CompiledSchema] = OrderedDict()  # by the number of the revision

    async def check(self, settings: SchemaSettings, messages: Sequence[NewMessage]) -> list[str]:
        """Of each message the attributes that say which revision it is like: the newest one that it is like.

        As a JSON object, the same for the same revision.  Raises InvalidArgument that names the message that is
        like none, and what is wrong with it by the newest; NotFound (the schema is deleted), Unavailable.
        """
        revisions = await self._resources.schema(settings.schema)
        if not revisions or revisions[0].schema_id != settings.schema_id:
            raise NotFound(f"Schema associated with topic deleted (schemaSettings.schema={settings.schema}).")
        candidates = within(settings, revisions)
        told = {revision.number: _attributes(revision, settings.encoding) for revision in candidates}
        found, began = [], perf_counter()
        for index, message in enumerate(messages):
            found.append(told[self._accepting(candidates, message.data, settings.encoding, index).number])
            if perf_counter() - began > _AT_ONCE_SECONDS:
                await asyncio.sleep(0)
                began = perf_counter()
        return found

    def _accepting(self, candidates: Sequence[Schema], data: bytes, encoding: str, index: int) -> Schema:
        first: Mismatch | None = None
        for revision in candidates:
            try:
                self._check(revision, data, encoding)
            except Mismatch as mismatch:
                first = first or mismatch
            else:
                return revision
        raise InvalidArgument(
            f"Invalid data in message: Message failed schema validation: messages[{index}].data is not "
            f"{candidates[0].revision_name} in {encoding} ({first})."
        )

    def _check(self, revision: Schema, data: bytes, encoding: str) -> None:
        compiled = self._compiled.get(revision.number)
        if compiled is None:
            compiled = self._compiled[revision.number] = compile_schema(revision)
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(revision.number)
        if not compiled.is_quick(len(data)):
            raise Mismatch("it is too large to be checked against this schema")
        compiled.check(data, encoding)


def _attributes(revision: Schema, encoding: str) -> str:
    """As Google calls them."""
    named = {
        "googclient_schemaencoding": encoding,
        "googclient_schemaname": revision.name,
        "googclient_schemarevisionid": revision.revision_id,
    }
    return msgspec.json.encode(named).decode()
