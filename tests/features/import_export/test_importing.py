"""`broker topic import` of files of Avro: cut into parts of which each is stored once (G2)."""

import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest

from tests.cli.client.terminal import Terminal
from tests.fixtures.broker import NO_TLS, text

SCHEMA = {
    "type": "record",
    "name": "M",
    "fields": [{"name": "data", "type": "bytes"}, {"name": "orderingKey", "type": ["null", "string"]}],
}


def _file(count: int, codec: str = "deflate") -> bytes:
    file = BytesIO()
    records = [{"data": b"m%d" % number, "orderingKey": "k" if number % 2 else None} for number in range(count)]
    fastavro.writer(file, SCHEMA, records, codec, sync_interval=10_000)
    return file.getvalue()


@pytest.fixture
def topic(broker_url: str, project: str) -> str:
    httpx.put(f"{broker_url}/v1/{project}/topics/replay", json={"messageRetentionDuration": "600s"}, verify=NO_TLS)
    return f"--url {broker_url} --project {project}"


def _stored(broker_url: str, project: str) -> list[Any]:
    answer = httpx.post(f"{broker_url}/v1/{project}/topics/replay:export", json={}, verify=NO_TLS)
    return [json.loads(line) for line in answer.content.splitlines()]


def test_a_file_is_imported_in_parts_and_goes_on_under_its_id(
    terminal: Terminal, tmp_path: Path, broker_url: str, project: str, topic: str
) -> None:
    file = tmp_path / "m.avro"
    whole = _file(2_500)
    file.write_bytes(whole[:-1])  # its last block cannot be read
    done = terminal.pipe(f"broker topic import replay --file {file} --id one {topic}")
    assert (done.code, "of the Avro file: it ends too early" in done.text) == (2, True), done.text
    assert "--id one" in done.text
    stored = len(_stored(broker_url, project))
    assert stored in (1_000, 2_000)
    file.write_bytes(whole)
    done = terminal.pipe(f"broker topic import replay --file {file} --id one --json {topic}")
    assert json.loads(done.text) == {"messageCount": "2500", "repeatedMessageCount": str(stored)}
    messages = _stored(broker_url, project)
    assert Counter(map(text, messages)) == Counter(f"m{number}" for number in range(2_500))
    of_key = [text(each) for each in messages if each.get("orderingKey") == "k"]
    assert of_key == [f"m{number}" for number in range(1, 2_500, 2)]


def test_a_file_of_something_else_is_refused_by_its_field(terminal: Terminal, tmp_path: Path, topic: str) -> None:
    file = tmp_path / "m.avro"
    content = BytesIO()
    fields = [{"name": "total", "type": "int"}]
    fastavro.writer(content, {"type": "record", "name": "R", "fields": fields}, [])
    file.write_bytes(content.getvalue())
    done = terminal.pipe(f"broker topic import replay --file {file} {topic}")
    assert (done.code, "a field that no message has: 'total'" in done.text) == (2, True), done.text
