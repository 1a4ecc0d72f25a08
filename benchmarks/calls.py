"""Requests of the Pub/Sub API, built for a load, and what little is read of the answers."""

import base64
import io
import json
import os
import random
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.load_spec import Spec
from benchmarks.wire import build_request

ACK_ID = re.compile(rb'"ackId": *"([^"]+)"')
_DATA = re.compile(rb'"data": *"([^"]+)"')
_BODIES = 8  # different ones, so that nothing in a server can live on having just seen the same bytes
_COUNT = b"@@@@@@@@"  # stands for the number of a request in the ids of its messages
_AT_ONCE = b'{"maxMessages":1000,"returnImmediately":true}'
_WAITING = b'{"maxMessages":1000}'
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "customer", "type": "long"},
        {"name": "total", "type": "double"},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD", "JPY"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def publish_body(batch: int, size: int, levels: int = 0) -> bytes:
    """A publish request of `batch` messages with `size` bytes of random data each, of so many levels by turns."""
    messages: list[dict[str, Any]] = [{"data": base64.b64encode(os.urandom(size)).decode()} for _ in range(batch)]
    for n, message in enumerate(messages if levels else ()):
        message["attributes"] = {"broker-priority": str(n % levels)}
    return json.dumps({"messages": messages}).encode()


def publish_requests(spec: Spec) -> list[bytes]:
    """Several different ones, to be sent by turns."""
    path = f"/v1/{spec.topic}:publish"
    if spec.records:
        return [build_request("POST", path, _records_body(spec.batch, spec.records)) for _ in range(_BODIES)]
    if spec.identified:
        return [build_request("POST", path, _identified_body(spec.batch, spec.size)) for _ in range(_BODIES)]
    return [build_request("POST", path, publish_body(spec.batch, spec.size, spec.levels)) for _ in range(_BODIES)]


def counted(request: bytes, number: int) -> bytes:
    """A request with ids that no other number has."""
    return request.replace(_COUNT, b"%08d" % number)


def _identified_body(batch: int, size: int) -> bytes:
    """Ids are of 32 characters, with a part that no other process has."""
    own = os.urandom(9).hex()
    messages = [
        {
            "data": base64.b64encode(os.urandom(size)).decode(),
            "attributes": {"broker-dedup-id": f"{own}-{_COUNT.decode()}-{n:04d}"},
        }
        for n in range(batch)
    ]
    return json.dumps({"messages": messages}).encode()


def _records_body(batch: int, encoding: str) -> bytes:
    """A publish request of `batch` records, some 40 bytes each in binary and 120 in JSON."""
    import fastavro  # here alone: other loads have no use for it

    schema = fastavro.parse_schema(RECORD)
    messages = []
    for _ in range(batch):
        record = {
            "order": os.urandom(8).hex(),
            "customer": random.randrange(10**9),
            "total": random.random(),
            "currency": random.choice(RECORD["fields"][3]["type"]["symbols"]),
            "note": None,
        }
        out = io.BytesIO()
        if encoding == "BINARY":
            fastavro.schemaless_writer(out, schema, record)
        data = out.getvalue() or json.dumps(record).encode()
        messages.append({"data": base64.b64encode(data).decode()})
    return json.dumps({"messages": messages}).encode()


def stamped_publish(topic: str, size: int, at: float, batch: int = 1) -> bytes:
    """A publish of messages whose data begins with a monotonic time, in nanoseconds."""
    messages = []
    for _ in range(batch):
        data = b"%d " % int(at * 1e9) + os.urandom(size // 2).hex().encode()
        messages.append({"data": base64.b64encode(data[:size]).decode()})
    return build_request("POST", f"/v1/{topic}:publish", json.dumps({"messages": messages}).encode())


def stamps(answer: bytes) -> list[float]:
    """The monotonic times in the messages of a pull's answer, published by `stamped_publish`."""
    return [int(base64.b64decode(data).split(b" ", 1)[0]) / 1e9 for data in _DATA.findall(answer)]


def pull(subscription: str, *, wait: bool = False) -> bytes:
    """A pull of up to 1,000 messages."""
    return build_request("POST", f"/v1/{subscription}:pull", _WAITING if wait else _AT_ONCE)


def acknowledge(subscription: str, ack_ids: Sequence[bytes]) -> bytes:
    body = b'{"ackIds":["' + b'","'.join(ack_ids) + b'"]}'
    return build_request("POST", f"/v1/{subscription}:acknowledge", body)
