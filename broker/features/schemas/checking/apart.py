"""The process that compiles protobuf, and checks messages that could be expensive.  It may end at any time.

`python -m broker.features.schemas.checking.apart` reads jobs from its input, writes an answer to each, and ends
with its input.  Its memory is limited, whatever its input.  Each job states how much processor time it may take;
the process ends (SIGPROF) when a job takes more.
"""

import os
import re
import resource
import signal
import sys
import tempfile
from pathlib import Path
from time import process_time

import msgspec

from broker.core.process.frames import frame, unframed
from broker.features.schemas.checking.compiled import CompiledSchema, compile_schema
from broker.features.schemas.checking.json_schema import JsonSchema
from broker.features.schemas.checking.mismatch import Mismatch
from broker.features.schemas.checking.strict_json import decode_json
from broker.features.schemas.schema import JSON, Schema
from broker.model.errors import InvalidArgument
from broker.model.schema_settings import Compatibility

MAX_MEMORY = 1_200_000_000  # bytes of address space; Python and protoc take some 500 MB of it
MAX_CALLS = 20_000  # of Python's functions within each other: a value of Avro within another one takes one
MAX_JSON = 20_000_000  # bytes of a message in JSON
_MAX_KNOWN = 50
_LOG_LINE = re.compile(r"[IWEF]\d{4} ")  # of the library that protoc logs with


class Compile(msgspec.Struct, tag=True):
    """A definition in protobuf's language (the answer has its FileDescriptorSet as `data`), or of JSON Schema."""

    definition: str
    kind: str


class Check(msgspec.Struct, tag=True):
    """A message.  `schema`: at a revision whose `number` no other has; 0: it is not kept."""

    schema: Schema
    data: bytes
    encoding: str


class Decode(msgspec.Struct, tag=True):
    """A message, as for Check; the answer has it as JSON."""

    schema: Schema
    data: bytes
    encoding: str


class Compare(msgspec.Struct, tag=True):
    """A new revision and those that it must be compatible with, the newest first, by the schema's compatibility."""

    schema: Schema
    revisions: list[Schema]
    compatibility: Compatibility


Job = Compile | Check | Decode | Compare


class Bounded(msgspec.Struct):
    """A job, and the seconds of processor time that it may take."""

    job: Job
    seconds: float


class Answer(msgspec.Struct):
    """`error`: what is wrong with what was given; empty: nothing.  `seconds` of processor time that it took."""

    error: str = ""
    data: bytes = b""
    seconds: float = 0.0


JOBS = msgspec.msgpack.Decoder(Bounded)
ANSWERS = msgspec.msgpack.Decoder(Answer)
encode = msgspec.msgpack.Encoder().encode


class _Worker:
    def __init__(self) -> None:
        self._known: dict[int, CompiledSchema] = {}

    def answer(self, job: Job) -> Answer:
        try:
            if isinstance(job, Compile):
                return _compile(job)
            if isinstance(job, Compare):
                return _compare(job)
            compiled = self._compiled(job.schema)
            compiled.check(job.data, job.encoding)
            if isinstance(job, Decode):
                return _decoded(compiled, job)
        except (Mismatch, InvalidArgument) as error:
            return Answer(error=str(error))
        except MemoryError:
            return Answer(error="it takes too much memory to read")
        return Answer()

    def _compiled(self, schema: Schema) -> CompiledSchema:
        compiled = self._known.get(schema.number) or compile_schema(schema)
        if schema.number:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[schema.number] = compiled
        return compiled


def _decoded(compiled: CompiledSchema, job: Decode) -> Answer:
    """Raises Mismatch."""
    if job.encoding == "JSON":
        return Answer(data=job.data)
    text = compiled.to_json(job.data)
    if len(text) > MAX_JSON:
        return Answer(error=f"it is longer than {MAX_JSON} bytes in JSON")
    try:
        decode_json(text.decode())
    except ValueError as error:
        raise Mismatch(f"it has a value that JSON has not: {error}") from error
    return Answer(data=text)


def _compile(job: Compile) -> Answer:
    """Raises InvalidArgument."""
    if job.kind == JSON:
        JsonSchema(job.definition).compile()
        return Answer()
    return _run_protoc(job.definition)


def _compare(job: Compare) -> Answer:
    from broker.features.schemas.checking.compatibility import incompatibility  # here alone, as protoc

    for revision in job.revisions:
        said = incompatibility(job.schema, revision, job.compatibility)
        if said:
            return Answer(error=f"Revision is incompatible with previous revision: {revision.revision_id}. {said}.")
    return Answer()


def _run_protoc(definition: str) -> Answer:
    """Compiles a definition with protoc.

    Its messages go to the second file descriptor, whatever Python has there.
    """
    from grpc_tools import protoc  # here alone: it takes some 10 MB

    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as said:
        source, target = Path(directory) / "schema.proto", Path(directory) / "set"
        source.write_text(definition, encoding="utf-8")
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            code = protoc.main(["protoc", f"-I{directory}", f"--descriptor_set_out={target}", str(source)])
        finally:
            os.dup2(before, 2)
            os.close(before)
        if code == 0:
            return Answer(data=target.read_bytes())
        said.seek(0)
        text = said.read(2_000).decode(errors="replace").replace(f"{directory}/", "")
        lines = [line for line in text.splitlines() if "schema.proto:" in line and not _LOG_LINE.match(line)]
        return Answer(error=" ".join(lines or text.split()) or "protoc refuses it")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(MAX_CALLS)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    worker = _Worker()
    while body := unframed(sys.stdin.buffer.read):
        bounded, began = JOBS.decode(body), process_time()
        signal.setitimer(signal.ITIMER_PROF, bounded.seconds)
        answer = worker.answer(bounded.job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer.seconds = process_time() - began
        sys.stdout.buffer.write(frame(encode(answer)))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
