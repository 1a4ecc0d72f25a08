"""Urgent messages, and how soon they are in hand: a role of benchmarks/load.py."""

import base64
import json
import os
import time
from collections.abc import Callable

from benchmarks.calls import ACK_ID, acknowledge
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import Connection, LoadFailed, build_request

_BODIES = 8
_URGENT = {"broker-priority": "0"}


def prepare_urgent(spec: Spec) -> Run:
    """Publish an urgent message, pull one, ack it, for `seconds`, and `count` at the least; note how long publish
    and pull took together.
    """
    connection = Connection(spec.host, spec.port)
    requests = [_publish(spec) for _ in range(_BODIES)]
    pull = build_request("POST", f"/v1/{spec.subscription}:pull", b'{"maxMessages":1}')

    def run() -> Result:
        result = Result(started=time.monotonic())
        while (before := time.monotonic()) < result.started + spec.seconds or result.requests < spec.count:
            connection.call(requests[result.requests % len(requests)])
            answer = connection.call(pull)
            result.pull_seconds.append(time.monotonic() - before)
            if b'"broker-priority"' not in answer:
                raise LoadFailed("something less urgent came first, or nothing")
            connection.call(acknowledge(spec.subscription, ACK_ID.findall(answer)))
            result.requests += 1
        result.ended = time.monotonic()
        result.messages = result.requests
        return result

    return run


def _publish(spec: Spec) -> bytes:
    message = {"data": base64.b64encode(os.urandom(spec.size)).decode(), "attributes": _URGENT}
    return build_request("POST", f"/v1/{spec.topic}:publish", json.dumps({"messages": [message]}).encode())


URGENT_ROLES: dict[str, Callable[[Spec], Run]] = {"urgent": prepare_urgent}
