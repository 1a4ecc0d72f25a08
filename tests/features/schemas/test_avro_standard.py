"""Avro is what its specification says, whatever libraries accept (decision 0072)."""

import io
import json
from collections.abc import Callable
from typing import Any

import avro.io
import avro.schema
import pytest
from avro.errors import AvroException
from hypothesis import given
from hypothesis import strategies as st

from broker.features.schemas.checking.avro import AvroSchema
from broker.features.schemas.checking.avro_definition import read_definition
from broker.features.schemas.checking.mismatch import Mismatch
from broker.model.errors import InvalidArgument
from tests.fixtures.avro_cases import DEFINITIONS, MESSAGES, Case


def _is_definition(text: str) -> bool:
    try:
        AvroSchema(text)
    except InvalidArgument:
        return False
    return True


def _is_message(definition: str, data: bytes, encoding: str) -> bool:
    try:
        AvroSchema(definition).check(data, encoding)
    except Mismatch:
        return False
    return True


@pytest.mark.parametrize("case", DEFINITIONS, ids=lambda case: case.name)
def test_a_definition_is_accepted_exactly_if_the_specification_allows_it(case: Case) -> None:
    assert _is_definition(case.definition) == case.right


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case.key)
def test_a_message_is_accepted_exactly_if_the_specification_allows_it(case: Case) -> None:
    assert _is_message(case.definition, case.data, case.encoding) == case.right


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (
            '{"type": "array", "items": ["null", "int"]}',
            b'[null, {"int": "x"}]',
            "the message[1].int must be int, not a string",
        ),
        (
            '{"type": "map", "values": "long"}',
            b'{"a": 1.5}',
            "the message[a key] must be long, not a number with a fraction",
        ),
        ('"int"', b"3000000000", "the message must be int, from -2147483648 to 2147483647"),
        ('"float"', b"NaN", "NaN is not JSON"),
        ('"double"', b"1" * 5_000, "a number has too many digits"),
        ('"string"', b"[" * 100_000, "it is nested too deep"),
    ],
)
def test_what_is_wrong_with_a_message_is_said_with_its_place(kind: str, data: bytes, said: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        AvroSchema(kind).check(data, "JSON")
    assert said in str(mismatch.value)


@pytest.mark.parametrize("case", [case for case in DEFINITIONS if case.right], ids=lambda case: case.name)
def test_what_a_definition_is_read_as_means_the_same_to_apache_avro(case: Case) -> None:
    """Which compares revisions; it would not take each definition as it is written."""
    read = read_definition(case.definition)
    assert read_definition(json.dumps(read.schema)) == read
    avro.schema.parse(json.dumps(read.schema))


_LEAVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


def _named(number: int, inner: list[Any]) -> st.SearchStrategy[Any]:
    fields = [{"name": f"f{index}", "type": kind} for index, kind in enumerate(inner)]
    return st.sampled_from(
        [
            {"type": "record", "name": f"R{number}", "fields": fields},
            {"type": "enum", "name": f"E{number}", "symbols": ["A", "B", "C"]},
            {"type": "fixed", "name": f"F{number}", "size": number % 4},
        ]
    )


@st.composite
def _kinds(draw: st.DrawFn, depth: int = 3) -> Any:
    """Types of Avro that nest; names occur once."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(_LEAVES))
    inner = draw(st.lists(_kinds(depth - 1), max_size=3))
    shape = draw(st.sampled_from(["named", "array", "map", "union"]))
    if shape == "named":
        return draw(_named(draw(st.integers(0, 10**9)), inner))
    if shape == "union":
        branches = {_branch(kind): kind for kind in inner if not isinstance(kind, list)}
        return list(branches.values())
    return {"type": shape, "items" if shape == "array" else "values": inner[0] if inner else "int"}


def _branch(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("name", kind["type"]))


def _definition(data: st.DataObject) -> str:
    """Of a schema that can be had: no array of what takes no bytes."""
    while True:
        text = json.dumps(data.draw(_kinds()))
        if _is_definition(text):
            return text


def _read_by_apache(definition: str, data: bytes) -> tuple[bool, bytes]:
    """Whether Apache's Avro reads all of it, and how it writes what it has read (b"": it would not)."""
    schema, file = avro.schema.parse(definition), io.BytesIO(data)
    try:
        value = avro.io.DatumReader(schema, schema).read(avro.io.BinaryDecoder(file))
        if file.tell() != len(data):
            return False, b""
    except Exception:
        return False, b""
    out = io.BytesIO()
    try:
        avro.io.DatumWriter(schema).write(value, avro.io.BinaryEncoder(out))
    except (AvroException, ValueError, TypeError, OverflowError):
        return True, b""
    return True, out.getvalue()


@given(st.data())
def test_bytes_are_judged_as_apache_avro_reads_them(data: st.DataObject) -> None:
    """What is accepted it can read; and what it would have written itself is accepted."""
    definition = _definition(data)
    small = st.sampled_from([0, 1, 2, 3, 4, 6, 0x61, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    given_bytes = bytes(data.draw(st.lists(small, max_size=12)))
    schema = AvroSchema(definition)
    if not schema.is_quick(len(given_bytes), "BINARY"):
        return
    accepted = _is_message(definition, given_bytes, "BINARY")
    readable, written = _read_by_apache(definition, given_bytes)
    if accepted:
        assert readable
    if readable and written == given_bytes:
        assert accepted


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.sampled_from(["A", "B", "\xff", "\u0100", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["f0", "f1", "f2", "int", "string", "null", "array", "map", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def _is_value(kind: Any, value: Any) -> bool:
    """The specification's table, once more and without care for speed or for what is wrong."""
    if isinstance(kind, list):
        if value is None or not isinstance(value, dict) or len(value) != 1:
            return value is None and "null" in kind
        [(name, inner)] = value.items()
        return any(_branch(branch) == name != "null" and _is_value(branch, inner) for branch in kind)
    return _TABLE[kind if isinstance(kind, str) else kind["type"]](kind, value)


def _is_whole(value: Any, bits: int) -> bool:
    return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


def _is_record(kind: Any, value: Any) -> bool:
    return isinstance(value, dict) and all(
        field["name"] in value and _is_value(field["type"], value[field["name"]]) for field in kind["fields"]
    )


_TABLE: dict[str, Callable[[Any, Any], bool]] = {
    "null": lambda kind, value: value is None,
    "boolean": lambda kind, value: isinstance(value, bool),
    "int": lambda kind, value: _is_whole(value, 32),
    "long": lambda kind, value: _is_whole(value, 64),
    "float": lambda kind, value: type(value) in (int, float),
    "double": lambda kind, value: type(value) in (int, float),
    "bytes": lambda kind, value: _is_bytes(value),
    "string": lambda kind, value: isinstance(value, str),
    "fixed": lambda kind, value: _is_bytes(value) and len(value) == kind["size"],
    "enum": lambda kind, value: isinstance(value, str) and value in kind["symbols"],
    "array": lambda kind, value: isinstance(value, list) and all(_is_value(kind["items"], each) for each in value),
    "map": lambda kind, value: (
        isinstance(value, dict) and all(_is_value(kind["values"], each) for each in value.values())
    ),
    "record": _is_record,
}
_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "bytes": st.text(st.characters(max_codepoint=255), max_size=3),
    "string": st.text(max_size=3),
}


def _branch_values(branch: Any) -> st.SearchStrategy[Any]:
    if branch == "null":
        return st.none()
    return _values(branch).map(lambda value: {_branch(branch): value})


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Mostly right ones: a part of them may be anything."""
    right: st.SearchStrategy[Any]
    if isinstance(kind, list):
        right = st.one_of([_branch_values(branch) for branch in kind]) if kind else _VALUES
    elif isinstance(kind, str):
        right = _RIGHT[kind]
    elif kind["type"] == "record":
        right = st.fixed_dictionaries({field["name"]: _values(field["type"]) for field in kind["fields"]})
    elif kind["type"] == "enum":
        right = st.sampled_from(kind["symbols"])
    elif kind["type"] == "fixed":
        right = st.text(st.characters(max_codepoint=255), min_size=kind["size"], max_size=kind["size"])
    elif kind["type"] == "array":
        right = st.lists(_values(kind["items"]), max_size=3)
    else:
        right = st.dictionaries(st.text(max_size=2), _values(kind["values"]), max_size=3)
    return st.integers(0, 9).flatmap(lambda chance: right if chance else _VALUES)


@given(st.data())
def test_json_is_judged_by_the_specifications_table(data: st.DataObject) -> None:
    definition = _definition(data)
    value = data.draw(_values(json.loads(definition)))
    text = json.dumps(value).replace("Infinity", "1e999")
    assert _is_message(definition, text.encode(), "JSON") == _is_value(json.loads(definition), json.loads(text))
