"""Messages of protobuf in JSON are what ProtoJSON says, whatever the library accepts (decision 0072).

https://protobuf.dev/programming-guides/json/.  Java's JsonFormat accepts all that is right
here.
"""

import json
from typing import Any

import pytest
from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from broker.features.schemas.checking.mismatch import Mismatch
from broker.features.schemas.checking.protobuf import ProtobufSchema, descriptor_of

_TYPES: Any = FieldDescriptorProto.Type
_INNER, _ENUM = ".p.M.N", ".p.M.E"
_SINGLE = {
    "i": "INT32", "u": "UINT32", "l": "INT64", "ul": "UINT64", "s": "STRING", "by": "BYTES", "d": "DOUBLE",
    "f": "FLOAT", "t": "BOOL", "snake_case": "STRING", "n": _INNER, "e": _ENUM,
    "ts": "Timestamp", "du": "Duration", "fm": "FieldMask", "st": "Struct", "lv": "ListValue", "va": "Value",
    "an": "Any", "em": "Empty", "wi": "Int32Value", "wb": "BoolValue", "wy": "BytesValue", "wd": "DoubleValue",
}  # fmt: skip
_REPEATED = {"r": "INT32", "rn": _INNER, "re": _ENUM, "rw": "Int32Value", "rv": "Value"}
_MAPS = {"m": ("STRING", "INT32"), "mn": ("STRING", _INNER), "mi": ("INT32", "INT32"), "mb": ("BOOL", "INT32")}
_ONEOF = {"a": "INT32", "b": _INNER}
_MODULES = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def _add(message: Any, name: str, kind: str, label: int = 1) -> Any:
    field = message.field.add(name=name, number=len(message.field) + 1, label=label)
    field.json_name = "snakeCase" if name == "snake_case" else name
    if kind.isupper():
        field.type = _TYPES.Value(f"TYPE_{kind}")
    else:
        field.type = _TYPES.TYPE_ENUM if kind == _ENUM else _TYPES.TYPE_MESSAGE
        field.type_name = kind if kind.startswith(".") else f".google.protobuf.{kind}"
    return field


def _compiled() -> bytes:
    files = FileDescriptorSet()
    for module in _MODULES:
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="m.proto", package="p", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _MODULES)
    message = file.message_type.add(name="M")
    _add(message.nested_type.add(name="N"), "i", "INT32")
    enum = message.enum_type.add(name="E")
    for number, name in enumerate("ZA"):
        enum.value.add(name=name, number=number)
    for name, kind in _SINGLE.items():
        _add(message, name, kind)
    for name, kind in _REPEATED.items():
        _add(message, name, kind, 3)
    for name, (key, kind) in _MAPS.items():
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", key)
        _add(entry, "value", kind)
        _add(message, name, f".p.M.{entry.name}", 3)
    message.oneof_decl.add(name="o")
    for name, kind in _ONEOF.items():
        _add(message, name, kind).oneof_index = 0
    return files.SerializeToString()


_COMPILED = _compiled()
_SCHEMA = ProtobufSchema(_COMPILED, "p.M")
_CLASS: Any = GetMessageClass(descriptor_of(_COMPILED, "p.M"))


def _accepts(text: str) -> bool:
    try:
        _SCHEMA.check(text.encode(), "JSON")
    except Mismatch:
        return False
    return True


_CASES = [  # a field; what is right, and what is wrong
    ("i", '1 "1" 1.0 1e2 "1e2" "1.0" null -2147483648', '"" [] {} true 1.5 "x" "\\u00201" "1_0" "0x1" 2147483648'),
    ("u", "0 4294967295", '-1 4294967296 "1_0"'),
    ("l", '"9223372036854775807" 1e18', "9223372036854775808 [] true"),
    ("ul", '"18446744073709551615"', "-1 []"),
    ("s", '"a" "" null "\\ud83d\\ude00"', '1 [] {} true "\\ud800"'),
    ("by", '"" "YQ==" "YQ" "_-8=" "+/8=" null', '"Y" "!!" "YQ=a" "YWI=YQ==" "\u00e9" 1 []'),
    (
        "d",
        '1 1.5 "1" "1e3" "NaN" "Infinity" "-Infinity" null',
        '"" "inf" "nan" "x" "\\u00201" "1_0" true [] NaN 1e400 "1e400"',
    ),
    ("f", '1 "3.4e38" "NaN"', '1e39 "3.5e38" "-3.5e38" false'),
    ("t", "true false null", '1 0 "true" "" []'),
    ("n", '{} {"i":1} null', '[] "" 0 false "x" [{}] {"i":[]} {"i":"a"} {"x":1}'),
    ("e", '"A" 1 5 null', '"Q" "" "a" [] {} true false 1.5'),
    ("r", '[] [1] ["1"] null', '1 0 {} "" "12" [null] [[1]] false'),
    ("rn", "[] [{}] null", '{} "" "ab" [null] [[]] [""] [0]'),
    ("re", '["A"] [1]', '[null] ["Q"] [[]] [true]'),
    ("m", '{} {"a":1} null', '[] "" 0 false {"a":null} {"a":"x"} {"a":[]} {"a":1,"a":2} [["a",1]]'),
    ("mn", '{"a":{}}', '{"a":[]} {"a":""} {"a":null} {"a":0}'),
    ("mi", '{"1":1}', '{"a":1} {"\\u00201":1} {"":1} {"1_0":1}'),
    ("mb", '{"true":1}', '{"1":1} {"True":1}'),
    ("a", "1 null", '"x" [] true'),
    ("b", "{} null", '[] "" 0'),
    ("snakeCase", '"a"', "1"),
    ("snake_case", '"a"', "1"),
    ("SnakeCase", "", '"a"'),
    (
        "ts",
        '"2026-01-01T00:00:00Z" "2026-01-01T00:00:00.5+01:00" null',
        '[] "" 0 {} "2026-01-01" "2026-01-01T00:00:00.1_0Z"',
    ),
    ("du", '"1s" "-1.5s" null', '[] "" 1 {} "1" "1_0s" "1.5_0s" "315576000001s"'),
    ("fm", '"a.bC,d" "" null', "[] {} 0"),
    ("st", '{} {"a":null} null', '[] "" 0'),
    ("lv", "[] [1,null,{}]", '{} "" 0'),
    ("va", 'null 1 [] {} "x" {"a":[1,null]}', ""),
    ("an", '{} {"@type":"type.googleapis.com/google.protobuf.Empty"}', '[] "" {"x":1}'),
    ("em", "{} null", '[] "" {"x":1}'),
    ("wi", '1 "1" null', '{} [] "" {"value":1} 1.5 "1_0"'),
    ("wb", "true null", '"true" 1 []'),
    ("wy", '"YQ" null', '"!" 1 []'),
    ("wd", '1 "NaN"', '"x" true "1_0"'),
    ("rw", "[1]", '[{}] {} "" [[]]'),
    ("rv", "[null]", '{} ""'),
]


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        (field, value, right)
        for field, *both in _CASES
        for right, values in zip((True, False), both, strict=True)
        for value in values.split(" ")
        if value
    ],
)
def test_a_field_takes_what_protojson_allows(field: str, value: str, right: bool) -> None:
    assert _accepts(f'{{"{field}": {value}}}') == right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("{}", True),
        ("[]", False),
        ('""', False),
        ("null", False),
        ("0", False),
        ("false", False),
        ("[{}]", False),
        ('{"a": 1, "b": null}', True),
        ('{"a": 1, "b": {}}', False),
        ('{"i": 1, "i": 2}', False),
        ('{"snakeCase": "a", "snake_case": "b"}', False),
        ('{"i": 1} x', False),
        ('{"i": 1,}', False),
        ("{i: 1}", False),
        ("/* */ {}", False),
    ],
)
def test_a_message_is_an_object_as_protojson_says(text: str, right: bool) -> None:
    assert _accepts(text) == right


def test_what_is_wrong_with_a_message_is_said_with_its_place() -> None:
    with pytest.raises(Mismatch, match=r"^M\.rn\[1\]\.i must be an integer, not an array$"):
        _SCHEMA.check(b'{"rn": [{}, {"i": []}]}', "JSON")


_MESSAGES = st.builds(
    lambda i, s, d, rn, m, n: _CLASS(
        i=i,
        s=s,
        d=d,
        rn=[{"i": each} for each in rn],
        m=m,
        mn={key: {"i": 1} for key in m},
        n={"i": n},
        by=s.encode(),
    ),
    st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=3),
    st.floats(),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(0, 9), min_size=1, max_size=3),
    st.integers(1, 9),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all objects, arrays and strings within a message."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in parts for found in _places(part, (*path, key)))]


@given(_MESSAGES, st.data())
def test_a_message_with_one_value_of_another_shape_is_refused(message: Any, data: st.DataObject) -> None:
    right = json_format.MessageToDict(message)
    assert _accepts(json.dumps(right))
    path = data.draw(st.sampled_from(_places(right)))
    holder, found = {"": right}, right
    for key in path:
        holder, found = found, found[key]
    kinds: list[Any] = [[], {}, True, [[]], {"?": []}]
    others = [other for other in kinds if type(other) is not type(found)]
    holder[path[-1] if path else ""] = data.draw(st.sampled_from(others))
    assert not _accepts(json.dumps(right if path else holder[""]))
