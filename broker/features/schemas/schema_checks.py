"""Checks whether published messages satisfy their topic's schema, and by which revision (A11).

Revisions never change, so each is compiled once in a process.  Messages that are cheap to read are checked here, a
few milliseconds at a time, and others in processes that projects share (schema_processes.py).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import perf_counter

import msgspec

from broker.core.catalog.resource_cache import ResourceCache
from broker.features.schemas.checking.apart import Check, Compare, Compile, Decode
from broker.features.schemas.checking.compiled import CompiledSchema, compile_schema
from broker.features.schemas.checking.mismatch import Mismatch, TooLarge
from broker.features.schemas.checking.protobuf import root_of
from broker.features.schemas.rows import find_all_revisions
from broker.features.schemas.schema import JSON, PROTOCOL_BUFFER, Schema, within
from broker.features.schemas.schema_processes import TOO_LONG, SchemaProcesses
from broker.model.errors import InvalidArgument, NotFound, ResourceExhausted
from broker.model.message import NewMessage
from broker.model.schema_settings import Compatibility, SchemaSettings
from broker.observability.metrics.counters import Counters

MAX_COMPILED = 200  # of 300 KB at most, which compiled are some MB
_PARTS = 100, 10  # how many messages are read together: the most that take little time
_AT_ONCE_SECONDS = 0.005  # then others have their turn


class SchemaChecks:
    """The schema checks of a process.

    `project` ("projects/p") takes the turns in processes that projects share.
    """

    def __init__(self, resources: ResourceCache, counters: Counters | None = None) -> None:
        self._revisions = resources.add(find_all_revisions)  # of each schema, the newest first
        self._processes = SchemaProcesses(counters=counters)
        self._compiled: OrderedDict[int, CompiledSchema] = OrderedDict()  # by the number of the revision

    async def check(
        self, project: str, settings: SchemaSettings, messages: Sequence[NewMessage], *, seconds: float = inf
    ) -> list[str]:
        """Returns for each message the attributes that name the newest revision that it conforms to.

        They are a JSON object, the same one for the same revision.  Raises InvalidArgument that names the message
        that conforms to none, and its mismatch with the newest; NotFound (the schema is deleted), ResourceExhausted
        (after `seconds` not all are checked), Unavailable.
        """
        revisions = await self.revisions(settings)
        candidates = within(settings, revisions)
        reported = {revision.number: _attributes(revision, settings.encoding) for revision in candidates}
        found: list[str] = []
        asked = began = perf_counter()
        while len(found) < len(messages):
            part, is_quick = self._part(
                candidates[0], messages[len(found) : len(found) + _PARTS[0]], settings.encoding
            )
            if is_quick and self._compile(candidates[0]).are_all_like(part, settings.encoding):
                found += [reported[candidates[0].number]] * len(part)
            else:
                for data in part:
                    if perf_counter() - asked > seconds:
                        raise ResourceExhausted(
                            f"The topic's schema takes too long: {len(found)} of {len(messages)} messages were "
                            f"checked within {seconds:g} s; publish fewer at a time."
                        )
                    accepting = await self._accepting(project, candidates, data, settings.encoding, len(found))
                    found.append(reported[accepting.number])
                    began = await _after_a_while(began)
            began = await _after_a_while(began)
        return found

    def _part(
        self, revision: Schema, messages: Sequence[NewMessage], encoding: str
    ) -> tuple[Sequence[bytes], bool]:
        """The data of the first messages, and whether they can be read together and at once."""
        compiled = self._compile(revision)
        data = [message.data for message in messages]
        for most in _PARTS:
            part = data[:most]
            if compiled.is_quick(sum(map(len, part)), encoding, len(part)):
                return part, True
        return data[: _PARTS[-1]], False

    async def prepare(self, project: str, schema: Schema) -> Schema:
        """The schema as it is stored: compiled, where it can be.  Raises InvalidArgument, Unavailable."""
        if schema.type == PROTOCOL_BUFFER and schema.definition:
            compiled = await self._compile_apart(project, schema)
            schema = replace(schema, compiled=compiled, root_message=root_of(compiled))
        compile_schema(schema)
        if schema.type == JSON:
            await self._compile_apart(project, schema)
        return schema

    async def _compile_apart(self, project: str, schema: Schema) -> bytes:
        """Raises InvalidArgument, Unavailable."""
        answer = await self._processes.run(project, Compile(schema.definition, schema.type))
        if answer.error:
            what = f"schema.type={schema.type}, schema.definition"
            raise InvalidArgument(f"Could not parse schema definition ({what}): {answer.error}")
        return answer.data

    async def check_compatible(
        self, project: str, schema: Schema, revisions: Sequence[Schema], compatibility: Compatibility
    ) -> None:
        """Raises InvalidArgument unless the revisions and the schema can read each other's messages, as they must.

        `revisions`: the newest first.
        """
        compared = compatibility.compared(revisions)
        if not compared:
            return
        answer = await self._processes.run(project, Compare(schema, list(compared), compatibility))
        if answer.error:
            cannot = "The revisions cannot be compared: " if answer.error == TOO_LONG else ""
            raise InvalidArgument(f"{cannot}{answer.error}")

    async def check_message(self, project: str, schema: Schema, data: bytes, encoding: str) -> None:
        """Raises Mismatch, InvalidArgument (there is no such schema), Unavailable."""
        compiled = self._compile(schema)
        if compiled.is_quick(len(data), encoding):
            compiled.check(data, encoding)
            return
        answer = await self._processes.run(project, Check(schema, data, encoding))
        if answer.error:
            raise (TooLarge if answer.error == TOO_LONG else Mismatch)(answer.error)

    async def decode(self, project: str, schema: Schema, data: bytes, encoding: str) -> bytes:
        """Returns a message in JSON.  Raises Mismatch, Unavailable."""
        answer = await self._processes.run(project, Decode(schema, data, encoding))
        if answer.error:
            raise (TooLarge if answer.error == TOO_LONG else Mismatch)(answer.error)
        return answer.data

    async def revisions(self, settings: SchemaSettings) -> Sequence[Schema]:
        """Returns the revisions of a topic's schema, the newest first.  Raises NotFound, Unavailable."""
        revisions = await self._revisions.get(settings.schema)
        if not revisions or revisions[0].schema_id != settings.schema_id:
            raise NotFound(f"Schema associated with topic deleted (schemaSettings.schema={settings.schema}).")
        return revisions

    async def close(self) -> None:
        await self._processes.close()

    async def _accepting(
        self, project: str, candidates: Sequence[Schema], data: bytes, encoding: str, index: int
    ) -> Schema:
        first: Mismatch | None = None
        for revision in candidates:
            try:
                await self.check_message(project, revision, data, encoding)
            except Mismatch as mismatch:
                first = first or mismatch
                if isinstance(mismatch, TooLarge):
                    break
            else:
                return revision
        raise InvalidArgument(
            f"Invalid data in message: Message failed schema validation: messages[{index}].data is not "
            f"{candidates[0].revision_name} in {encoding} ({first})."
        )

    def _compile(self, schema: Schema) -> CompiledSchema:
        """Raises InvalidArgument."""
        compiled = self._compiled.get(schema.number) or compile_schema(schema)
        if schema.number:
            self._compiled[schema.number] = compiled
            self._compiled.move_to_end(schema.number)
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        return compiled


async def _after_a_while(began: float) -> float:
    """Lets others run if the turn has lasted long; returns since when the present turn lasts."""
    if perf_counter() - began <= _AT_ONCE_SECONDS:
        return began
    await asyncio.sleep(0)
    return perf_counter()


def _attributes(revision: Schema, encoding: str) -> str:
    """Returns the attributes by Google's names."""
    named = {
        "googclient_schemaencoding": encoding,
        "googclient_schemaname": revision.name,
        "googclient_schemarevisionid": revision.revision_id,
    }
    return msgspec.json.encode(named).decode()
