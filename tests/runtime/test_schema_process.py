"""What a schema or a message could cost is spent in a process that may be ended (A11)."""

import json

import pytest

from broker.domain.schema import Schema
from broker.payload_schemas.apart import Check
from broker.payload_schemas.json_schema import JsonSchema
from broker.runtime.schema_process import TOO_LONG, SchemaProcess

# Each level of a message is looked at twice, and so is each within it.
_TWICE = [{"type": "array", "items": {"$ref": "#"}, "minItems": least} for least in (2, 1)]


async def test_a_small_message_that_would_take_for_ever_ends_the_process_and_the_next_is_read() -> None:
    definition = json.dumps({"anyOf": [{"type": "integer"}, *_TWICE]})
    assert not JsonSchema(definition).is_quick(2, "JSON")
    process = SchemaProcess(job_seconds=4)
    schema = Schema(name="s", type="JSON", definition=definition)
    try:
        assert (await process.run(Check(schema, b"[[1], 2]", "JSON"))).error == ""
        assert (await process.run(Check(schema, b"[" * 40 + b"]" * 40, "JSON"))).error == TOO_LONG
        assert (await process.run(Check(schema, b"[[1], 2]", "JSON"))).error == ""
    finally:
        await process.close()


@pytest.mark.parametrize(
    "definition",
    [
        {"$defs": {"a": {"$dynamicRef": "#b"}}},
        {"properties": {"a": {"$id": "b"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"items": {"pattern": "(a?){50}a{50}"}},
        {"$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(3_000)}, "$ref": "#/$defs/d0"},
        {"anyOf": [{"pattern": f"a{n}"} for n in range(30)]},
        {
            "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(12)},
            "$ref": "#/$defs/d0",
        },
    ],
)
def test_a_definition_that_is_hard_to_follow_is_never_read_by_at_once(definition: object) -> None:
    assert not JsonSchema(json.dumps(definition)).is_quick(1, "JSON")
