"""What fastavro and protobuf write is a message of its schema, in either encoding (A11)."""

import io
import json
from typing import Any

import fastavro
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from broker.features.schemas.checking.avro import AvroSchema
from broker.features.schemas.checking.compatibility import incompatibility
from broker.features.schemas.checking.compiled import CompiledSchema
from broker.features.schemas.checking.json_schema import JsonSchema, json_incompatibility
from broker.features.schemas.checking.mismatch import Mismatch
from broker.features.schemas.checking.protobuf import ProtobufSchema
from broker.features.schemas.schema import Schema

_PLAIN = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),  # JSON has neither
    "string": st.text(),
    "bytes": st.binary(),
}


def _types(names: Any) -> st.SearchStrategy[Any]:
    """Of Avro, from plain ones up; records have names that occur once."""
    plain = st.sampled_from(sorted(_PLAIN))

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        record = st.lists(inner, min_size=1, max_size=4).map(
            lambda kinds: {
                "type": "record",
                "name": f"R{next(names)}",
                "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)],
            }
        )
        return st.one_of(
            record,
            inner.map(lambda kind: {"type": "array", "items": kind}),
            inner.map(lambda kind: {"type": "map", "values": kind}),
            plain.map(lambda kind: ["null", kind]),
        )

    return st.recursive(plain, larger, max_leaves=8)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, str):
        return _PLAIN[kind]
    if isinstance(kind, list):
        return st.none() | _values(kind[1])
    if kind["type"] == "record":
        return st.fixed_dictionaries({field["name"]: _values(field["type"]) for field in kind["fields"]})
    if kind["type"] == "array":
        return st.lists(_values(kind["items"]), max_size=4)
    return st.dictionaries(st.text(min_size=1), _values(kind["values"]), max_size=4)


def _accepted(schema: CompiledSchema, data: bytes, encoding: str) -> bool:
    try:
        schema.check(data, encoding)
    except Mismatch:
        return False
    return True


@given(st.data())
def test_what_fastavro_writes_is_accepted_in_both_encodings(data: st.DataObject) -> None:
    kind = data.draw(_types(iter(range(1_000))))
    schema, value = AvroSchema(json.dumps(kind)), data.draw(_values(kind))
    parsed, binary, text = fastavro.parse_schema(kind), io.BytesIO(), io.StringIO()
    fastavro.schemaless_writer(binary, parsed, value)
    fastavro.json_writer(text, parsed, [value])
    assert _accepted(schema, binary.getvalue(), "BINARY")
    assert _accepted(schema, text.getvalue().encode(), "JSON")
    assert not _accepted(schema, binary.getvalue() + b"\0", "BINARY")


@given(st.data(), st.binary(max_size=40))
def test_bytes_that_are_no_message_cause_no_other_error(data: st.DataObject, given_bytes: bytes) -> None:
    schema = AvroSchema(json.dumps(data.draw(_types(iter(range(1_000))))))
    for encoding in ("BINARY", "JSON"):
        if schema.is_quick(len(given_bytes), encoding):
            _accepted(schema, given_bytes, encoding)


@given(st.data())
def test_messages_that_are_read_together_are_judged_as_one_by_one(data: st.DataObject) -> None:
    """Also where a field has a default."""
    kind = data.draw(_types(iter(range(1_000))))
    if isinstance(kind, dict) and kind["type"] == "record" and data.draw(st.booleans()):
        kind["fields"].append({"name": "last", "type": {"type": "array", "items": "int"}, "default": [1]})
    schema, parsed = AvroSchema(json.dumps(kind)), fastavro.parse_schema(kind)
    messages: dict[str, list[bytes]] = {"BINARY": [], "JSON": []}
    for _ in range(data.draw(st.integers(1, 4))):
        binary, text, value = io.BytesIO(), io.StringIO(), data.draw(_values(kind))
        fastavro.schemaless_writer(binary, parsed, value)
        fastavro.json_writer(text, parsed, [value])
        cut = data.draw(st.none() | st.integers(0, len(binary.getvalue())))
        messages["BINARY"] += (
            [binary.getvalue()] if cut is None else [binary.getvalue()[:cut], binary.getvalue()[cut:]]
        )
        messages["JSON"] += [b"null", text.getvalue().encode()] if cut == 0 else [text.getvalue().encode()]
    for encoding, each in messages.items():
        assert schema.are_all_like(each, encoding) == all(_accepted(schema, one, encoding) for one in each)


def test_a_message_does_not_end_in_the_next_one() -> None:
    together = [b"\x04a", b"b\x00"]  # as one text: "ab" and ""
    assert not AvroSchema('"string"').are_all_like(together, "BINARY")
    assert AvroSchema('"string"').are_all_like([b"\x04ab", b"\x00"], "BINARY")


@given(st.data())
def test_revisions_of_avro_that_are_compatible_read_each_others_messages(data: st.DataObject) -> None:
    kinds = [data.draw(_types(iter(range(1_000)))) for _ in range(2)]
    new, old = (Schema(name="s", type="AVRO", definition=json.dumps(kind)) for kind in kinds)
    assert incompatibility(old, old) == ""
    if not incompatibility(new, old):
        out = io.BytesIO()
        written = fastavro.parse_schema(kinds[1])
        fastavro.schemaless_writer(out, written, data.draw(_values(kinds[1])))
        fastavro.schemaless_reader(io.BytesIO(out.getvalue()), written, fastavro.parse_schema(kinds[0]))


def _order() -> tuple[ProtobufSchema, Any]:
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", 9), ("n", 5), ("body", 12), ("part", 11), ("price", 1)), 1):
        field = order.field.add(name=name, number=number, type=kind, label=1, json_name=name)  # type: ignore[arg-type]
        if kind == 11:
            field.type_name = ".Order"
    pool = DescriptorPool()
    pool.Add(file)
    compiled = FileDescriptorSet(file=[file]).SerializeToString()
    return ProtobufSchema(compiled, "Order"), GetMessageClass(pool.FindMessageTypeByName("Order"))


_ORDER, _MESSAGE = _order()


@given(st.binary(max_size=40))
def test_bytes_are_accepted_exactly_if_protobuf_reads_them_and_knows_each_field(given_bytes: bytes) -> None:
    try:
        message = _MESSAGE.FromString(given_bytes)
    except DecodeError:
        readable = False
    else:
        size = message.ByteSize()
        message.DiscardUnknownFields()
        readable = message.ByteSize() == size
    assert _accepted(_ORDER, given_bytes, "BINARY") == readable
    _accepted(_ORDER, given_bytes, "JSON")  # no other error


@given(id=st.text(), n=st.integers(-(2**31), 2**31 - 1), body=st.binary(), price=st.floats())
def test_what_protobuf_writes_is_accepted_in_both_encodings(**values: Any) -> None:
    message = _MESSAGE(part=_MESSAGE(**values), **values)
    assert _accepted(_ORDER, message.SerializeToString(), "BINARY")
    assert _accepted(_ORDER, json_format.MessageToJson(message).encode(), "JSON")
    assert not _accepted(_ORDER, message.SerializeToString() + b"\x78\x01", "BINARY")


_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0]) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
_LEAVES = st.one_of(
    st.booleans(),
    st.builds(
        lambda kind: {"type": kind}, st.sampled_from(["null", "integer", "number", "string", "object", "array"])
    ),
    st.builds(lambda least: {"minimum": least}, st.integers(-2, 2)),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 3)),
    st.builds(lambda values: {"enum": values}, st.lists(_JSON_VALUES, min_size=1, max_size=3)),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    closed = {"required": st.lists(st.sampled_from("abc"), max_size=2, unique=True), "additionalProperties": inner}
    return st.fixed_dictionaries({"properties": fields}, optional=closed)


_JSON_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(lambda item: {"items": item}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=5,
)


@given(st.data(), _JSON_SCHEMAS, st.lists(_JSON_VALUES, max_size=20))
def test_what_is_shown_to_be_compatible_by_json_schema_is(
    data: st.DataObject, writer: Any, values: list[Any]
) -> None:
    """Of all messages by the one, each is as the other says; and reading them together changes nothing."""
    reader = data.draw(st.one_of(_JSON_SCHEMAS, st.just({"anyOf": [writer, {"type": "null"}]})))
    read, written = JsonSchema(json.dumps(reader)), JsonSchema(json.dumps(writer))
    messages = [json.dumps(value).encode() for value in values]
    right = [message for message in messages if _accepted(written, message, "JSON")]
    assert written.are_all_like(messages, "JSON") == (len(right) == len(messages))
    assert json_incompatibility(json.dumps(writer), json.dumps(writer)) == ""
    if not json_incompatibility(json.dumps(reader), json.dumps(writer)):
        assert all(_accepted(read, message, "JSON") for message in right)


def test_what_cannot_be_shown_by_json_schema_counts_as_not_compatible() -> None:
    """jsonschema-rs does not know whether whole numbers take in all numbers."""
    assert "cannot be shown" in json_incompatibility('{"type": "integer"}', '{"type": "number"}')
    assert json_incompatibility('{"type": "number"}', '{"type": "integer"}') == ""
