"""Messages in files of Avro are what fastavro finds in them, and puts there; what is none is refused (G2)."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.log_page import MatchedMessage
from broker.features.import_export.avro_messages import CODECS, MESSAGE, NEW_MESSAGE, AvroReader, AvroWriter
from broker.features.import_export.rest import PIECE_BYTES, AvroFile
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.message_id import id_of

MARKER = b"0123456789abcdef"
GOOGLES = [
    {"name": "subscription_name", "type": "string"},
    {"name": "message_id", "type": "string"},
    {"name": "publish_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "attributes", "type": {"type": "map", "values": "string"}},
    {"name": "data", "type": "bytes"},
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
stored = st.builds(
    MatchedMessage,
    shard_id=st.integers(1, 9),
    seq=st.integers(0, 2**40),
    publish_time=st.datetimes(datetime(1970, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC)),
    ordering_key=st.none() | texts,
    attributes=st.dictionaries(texts, texts, max_size=5).map(json.dumps),
    data=st.binary(max_size=200),
)


def _file(pages: Sequence[Sequence[MatchedMessage]], codec: str) -> bytes:
    form = AvroFile(codec, MARKER)
    return form.begin() + b"".join(piece for page in pages for piece in form.pieces(page))


def _read(file: bytes, most_bytes: int = 1_000_000) -> list[NewMessage]:
    return list(AvroReader(BytesIO(file), most_bytes))


def _fields(message: NewMessage) -> dict[str, object]:
    return {
        "data": message.data,
        "attributes": message.attributes,
        "ordering_key": message.ordering_key,
    }


def _written(schema: Any, records: list[Any], codec: str = "null", **options: Any) -> bytes:
    file = BytesIO()
    fastavro.writer(file, schema, records, codec, sync_marker=MARKER, **options)
    return file.getvalue()


@given(pages=st.lists(st.lists(stored, max_size=6), max_size=3), codec=st.sampled_from(CODECS))
def test_an_export_is_read_by_fastavro_and_by_an_import_as_it_was_stored(
    pages: list[list[MatchedMessage]], codec: str
) -> None:
    file = _file(pages, codec)
    reader: Any = fastavro.reader(BytesIO(file))
    expected = [
        {
            "message_id": id_of(each.shard_id, each),
            "publish_time": each.publish_time,
            "ordering_key": each.ordering_key or "",
            "attributes": json.loads(each.attributes),
            "data": each.data,
        }
        for page in pages
        for each in page
    ]
    assert list(reader) == expected
    assert (reader.codec, reader.writer_schema["name"]) == (codec.lower(), "PubsubMessage")
    reported = [{name: each[name] for name in ("data", "attributes", "ordering_key")} for each in expected]
    messages = _read(file)
    assert [_fields(each) for each in messages] == reported
    again = AvroWriter(NEW_MESSAGE, codec, MARKER)
    for each in messages:
        again.add(_fields(each))
    assert [_fields(each) for each in _read(again.take())] == reported


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_large_is_written_in_blocks_of_its_own(codec: str) -> None:
    moment = datetime(2026, 11, 25, tzinfo=UTC)
    sizes = [10, PIECE_BYTES, 10, 10, 3 * PIECE_BYTES, 10]
    page = [MatchedMessage(1, n, moment, None, "{}", bytes(size)) for n, size in enumerate(sizes)]
    blocks: Any = fastavro.block_reader(BytesIO(_file([page], codec)))
    assert [block.num_records for block in blocks] == [2, 3, 1]
    assert [len(each.data) for each in _read(_file([page], codec))] == sizes


@given(
    records=st.lists(
        st.fixed_dictionaries(
            {"ordering_key": texts, "attributes": st.dictionaries(texts, texts, max_size=100), "data": st.binary()}
        )
    ),
    codec=st.sampled_from(["null", "deflate"]),
    interval=st.integers(1, 100),
)
def test_a_file_of_fastavro_is_read(records: list[Any], codec: str, interval: int) -> None:
    file = _written(NEW_MESSAGE, records, codec, sync_interval=interval)
    assert [_fields(each) for each in _read(file)] == records


def test_files_of_others_are_read_whatever_their_names_and_nulls() -> None:
    """Google's, Java's; what is not there is empty."""
    record = {
        "message_id": "1",
        "publish_time": 7,
        "attributes": {"a": "b"},
        "data": b"x",
        "subscription_name": "s",
    }
    [message] = _read(_written({"type": "record", "name": "a.b.M", "fields": GOOGLES}, [record]))
    assert message == NewMessage(data=b"x", attributes={"a": "b"})
    [message] = _read(
        _written({"type": "record", "name": "M", "fields": [{"name": "data", "type": "bytes"}]}, [record])
    )
    assert message == NewMessage(data=b"x")
    java = {"type": "string", "avro.java.string": "String"}
    fields = [
        {"name": "orderingKey", "type": ["null", java], "default": None},
        {"name": "data", "type": ["bytes", "null"]},
        {"name": "attributes", "type": ["null", {"type": "map", "values": java, "avro.java.string": "String"}]},
    ]
    records = [{"orderingKey": "k", "data": b"x", "attributes": {"a": "b"}}, dict.fromkeys(("orderingKey", "data"))]
    assert _read(_written({"type": "record", "name": "M", "fields": fields}, records)) == [
        NewMessage(data=b"x", attributes={"a": "b"}, ordering_key="k"),
        NewMessage(),
    ]


def _schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "M", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "must be a record"),
        (_schema(("n", "int"), ("data", "bytes")), "'n'"),
        (_schema(("data", "string")), "data of the Avro file must be bytes"),
        (_schema(("data", ["null", "bytes", "int"])), "data of the Avro file must be bytes"),
        (_schema(("data", "bytes"), ("attributes", {"type": "map", "values": "long"})), "a map of string"),
        (_schema(("data", "bytes"), ("message_id", "string"), ("messageId", "string")), "'messageId'"),
        (_schema(("message_id", "string")), "no field data"),
    ],
)
def test_another_schema_is_refused_by_its_field(schema: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        _read(_written(schema, []))


def _head(schema: bytes, codec: bytes = b"null") -> bytes:
    file = BytesIO(b"Obj\x01")
    file.seek(4)
    metadata = {"avro.schema": schema, "avro.codec": codec}
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, metadata)
    return file.getvalue() + MARKER


def _long(number: int) -> bytes:
    file = BytesIO()
    fastavro.schemaless_writer(file, "long", number)
    return file.getvalue()


HEAD = _head(json.dumps(MESSAGE).encode())
DATA_ONLY = _head(json.dumps(_schema(("data", "bytes"))).encode())
KEY_ONLY = _head(json.dumps(_schema(("ordering_key", "string"), ("data", "bytes"))).encode())
ATTRIBUTES_ONLY = _head(
    json.dumps(_schema(("attributes", ["null", {"type": "map", "values": "string"}]), ("data", "bytes"))).encode()
)
GOOD = _long(1) + _long(2) + b"\x02x" + MARKER


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"", "does not begin as an Avro file"),
        (b"Obj\x01", "head of the Avro file"),
        (b"Obj\x01" + b"\xfe" * 9 + b"\x01", "head of the Avro file"),
        (_head(b"no json"), "head of the Avro file"),
        (_head(b"[" * 100_000), "head of the Avro file"),
        (_head(b'{"type":' * 900 + b'"bytes"' + b"}" * 900), "must be a record"),
        (
            _head(json.dumps(MESSAGE).encode(), b"snappy"),
            "codec of the Avro file must be null or deflate, not snappy",
        ),
        (DATA_ONLY + GOOD + b"\x80", "Block 2 of the Avro file: its length"),
        (DATA_ONLY + GOOD + _long(0) + _long(0) + MARKER, "Block 2 of the Avro file: it has no record"),
        (DATA_ONLY + GOOD + _long(-1) + _long(0) + MARKER, "it has no record"),
        (DATA_ONLY + GOOD + _long(1) + _long(2**62), "it is larger than"),
        (DATA_ONLY + GOOD + GOOD[:-17], "Block 2 of the Avro file: it ends too early"),
        (DATA_ONLY + GOOD + GOOD[:-1], "Block 2 of the Avro file: it ends too early"),
        (DATA_ONLY + GOOD[:-1] + b"!", "Block 1 of the Avro file: it does not end with the file's sync marker"),
        (
            DATA_ONLY + GOOD + _long(2) + GOOD[1:],
            "Block 2, record 2 of the Avro file: it is not as the schema says",
        ),
        (DATA_ONLY + _long(1) + _long(3) + b"\x02xy" + MARKER, "more than the 1 records"),
        (DATA_ONLY + _long(1) + _long(2) + b"\x05x" + MARKER, "record 1 of the Avro file: it is not as"),
        (
            KEY_ONLY + _long(1) + _long(3) + b"\x02\xff\x00" + MARKER,
            "record 1 of the Avro file: a text is not UTF-8",
        ),
        (_head(json.dumps(MESSAGE).encode(), b"deflate") + GOOD, "Block 1 of the Avro file: it is not compressed"),
        (_head(b" " * 65_536), "head of the Avro file is larger than 65536 bytes"),
        (b"Obj\x01" + _long(101) + b"\x00" * 1_000, "head of the Avro file"),
        (b"Obj\x01" + _long(1) + _long(-1) + b"\x00" * 1_000, "head of the Avro file"),
        (b"Obj\x01" + _long(1) + b"\x02a" + _long(9) + b"x", "head of the Avro file"),
        (
            ATTRIBUTES_ONLY + _long(1) + _long(4) + b"\x02\x01\x00\x00" + MARKER,
            "record 1 of the Avro file: it is not",
        ),
        (ATTRIBUTES_ONLY + _long(1) + _long(1) + b"\x03" + MARKER, "record 1 of the Avro file: it is not as"),
    ],
)
def test_a_broken_file_is_refused_by_the_block_and_the_record(file: bytes, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        _read(file)


def test_a_block_is_not_unpacked_further_than_it_may() -> None:
    records = [{"ordering_key": "", "attributes": {}, "data": bytes(2_000_000)}]
    file = _written(NEW_MESSAGE, records, "deflate")
    assert len(file) < 10_000
    with pytest.raises(
        InvalidArgument, match="Block 1 of the Avro file: it is larger than 1000000 bytes, unpacked"
    ):
        _read(file)
    cut = file[:-30] + file[-16:]
    with pytest.raises(InvalidArgument, match="Block 1"):
        _read(cut, 3_000_000)


@pytest.mark.parametrize("count", [101, 300_000, -300_000])
def test_no_more_attributes_are_read_than_a_message_may_have(count: int) -> None:
    """A few kilobytes of deflate are millions of them, which may all be one."""
    entries = _long(count) + (_long(4) if count < 0 else b"") + b"\x02a\x00" * abs(count)
    block = b"\x02" + entries + b"\x00" + b"\x00"
    with pytest.raises(
        InvalidArgument, match="Block 1, record 1 of the Avro file: it has more than 100 attributes"
    ):
        _read(ATTRIBUTES_ONLY + _long(1) + _long(len(block)) + block + MARKER, len(block))


def test_attributes_may_come_in_blocks_with_their_sizes() -> None:
    blocks = b"\x02" + _long(-1) + _long(4) + b"\x02a\x02b" + _long(1) + b"\x02c\x00" + b"\x00"
    block = blocks + b"\x02x"
    file = ATTRIBUTES_ONLY + _long(1) + _long(len(block)) + block + MARKER
    assert _read(file) == [NewMessage(data=b"x", attributes={"a": "b", "c": ""})]


@given(st.data())
def test_whatever_is_changed_in_a_file_it_is_read_or_refused(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(["null", "deflate"]))
    records = [{"ordering_key": "k", "attributes": {"a": "b"}, "data": b"x" * n} for n in range(4)]
    file = bytearray(_written(NEW_MESSAGE, records, codec, sync_interval=20))
    for at in data.draw(st.lists(st.integers(0, len(file) - 1), max_size=3)):
        file[at] = data.draw(st.integers(0, 255))
    with suppress(InvalidArgument):
        _read(bytes(file[: data.draw(st.integers(0, len(file)))]))
