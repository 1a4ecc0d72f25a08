"""A load process: `python -m benchmarks.load SPEC`, started by generators.py.

    start ──connects, prepares──► prints "ready" ──reads a line──► runs ──► prints its result as JSON, ends

It imports little and does little per message: bodies are prepared before the start, ack ids are found by a
regular expression, and many connections are served by one selector.  All times are of CLOCK_MONOTONIC, which is
the same in every process.
"""

import json
import os
import random
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.calls import ACK_ID, acknowledge, counted, publish_requests
from benchmarks.client_load import CLIENT_ROLES
from benchmarks.delay_load import DELAY_ROLES
from benchmarks.google_load import GOOGLE_ROLES
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.open_loop import prepare_open_loop
from benchmarks.paced_load import PACED_ROLES
from benchmarks.push_load import PUSH_ROLES
from benchmarks.spread_load import SPREAD_ROLES
from benchmarks.stream_load import STREAM_ROLES
from benchmarks.urgent_load import URGENT_ROLES
from benchmarks.wire import Connection, LoadFailed, build_request

_EMPTY_ANSWERS = 30  # in a row, before a backlog counts as drained
_EMPTY_PAUSE_SECONDS = 0.01
_ANSWER_SECONDS = 60.0  # longer than any answer takes that is worth measuring
_SETTLE_SECONDS = (0.004, 0.008)  # from sending a pull to being sure that it waits


def prepare_publish(spec: Spec) -> Run:
    """Publish on every connection, one request at a time on each, for `seconds` and at most `count` messages."""
    requests = publish_requests(spec)
    connections = [Connection(spec.host, spec.port) for _ in range(spec.connections)]
    allowed = -(-spec.count // spec.batch) if spec.count else sys.maxsize
    sent_at = dict.fromkeys(connections, 0.0)

    def next_request(sent: int) -> bytes:
        request = requests[sent % len(requests)]
        return counted(request, sent) if spec.identified else request

    def run() -> Result:
        result = Result(started=time.monotonic())
        stop = result.started + (spec.seconds or float("inf"))
        sent = 0
        with selectors.DefaultSelector() as selector:
            for connection in connections[:allowed]:
                selector.register(connection, selectors.EVENT_READ, connection)
                sent_at[connection] = time.monotonic()
                connection.send(next_request(sent))
                sent += 1
            while selector.get_map():
                for key, _ in selector.select():
                    connection = key.data
                    connection.receive()
                    result.requests += 1
                    now = time.monotonic()
                    if spec.timed:
                        result.publish_seconds.append(now - sent_at[connection])
                    if sent < allowed and now < stop:
                        sent_at[connection] = now
                        connection.send(next_request(sent))
                        sent += 1
                    else:
                        selector.unregister(connection)
        result.ended = time.monotonic()
        result.messages = result.requests * spec.batch
        return result

    return run


def prepare_drain(spec: Spec) -> Run:
    """Pull and ack until the backlog is empty, at least for `seconds`, at most for `limit_seconds`."""
    connection = Connection(spec.host, spec.port)
    asked = {"maxMessages": spec.max_messages, "returnImmediately": True}
    pull = build_request("POST", f"/v1/{spec.subscription}:pull", json.dumps(asked).encode())

    def run() -> Result:
        result = Result(started=time.monotonic())
        result.ended = result.started
        may_end = result.started + (spec.seconds if spec.limit_seconds else 0)
        stop = result.started + (spec.limit_seconds or spec.seconds)
        empty = 0
        while time.monotonic() < stop:
            ack_ids = ACK_ID.findall(connection.call(pull))
            if ack_ids:
                empty = 0
                connection.call(acknowledge(spec.subscription, ack_ids))
                result.requests += 1
                result.messages += len(ack_ids)
                result.ended = time.monotonic()
            else:
                empty += 1
                if empty > _EMPTY_ANSWERS and time.monotonic() > may_end:
                    break
                time.sleep(_EMPTY_PAUSE_SECONDS)
        return result

    return run


def prepare_lone_publish(spec: Spec) -> Run:
    """Publish on one connection, each request after the answer to the one before; note how long each took."""
    requests = publish_requests(spec)
    connection = Connection(spec.host, spec.port)

    def run() -> Result:
        result = Result(started=time.monotonic())
        while (before := time.monotonic()) < result.started + spec.seconds:
            connection.call(requests[result.requests % len(requests)])
            result.publish_seconds.append(time.monotonic() - before)
            result.requests += 1
        result.ended = time.monotonic()
        result.messages = result.requests * spec.batch
        return result

    return run


def prepare_waiting_pull(spec: Spec) -> Run:
    """Send a pull, let it wait, publish on another connection, note when each is answered; ack; again."""
    requests = publish_requests(spec)
    publisher, puller, acker = (Connection(spec.host, spec.port) for _ in range(3))
    pull = build_request("POST", f"/v1/{spec.subscription}:pull", b'{"maxMessages":10}')

    def run() -> Result:
        result = Result(started=time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(publisher, selectors.EVENT_READ)
            selector.register(puller, selectors.EVENT_READ)
            while time.monotonic() < result.started + spec.seconds:
                puller.send(pull)
                time.sleep(random.uniform(*_SETTLE_SECONDS))
                if selector.select(0):
                    raise LoadFailed("a pull was answered before anything was published: it did not wait")
                ack_ids = _publish_to_waiting(result, selector, publisher, puller, requests, pull)
                acker.call(acknowledge(spec.subscription, ack_ids))
        result.ended = time.monotonic()
        result.messages = result.requests
        return result

    return run


def _publish_to_waiting(
    result: Result,
    selector: selectors.BaseSelector,
    publisher: Connection,
    puller: Connection,
    requests: list[bytes],
    pull: bytes,
) -> list[bytes]:
    """One publish to the pull that waits.  Returns the ack ids."""
    before = time.monotonic()
    publisher.send(requests[result.requests % len(requests)])
    result.requests += 1
    published = False
    ack_ids: list[bytes] = []
    while not (published and ack_ids):
        if not (ready := selector.select(_ANSWER_SECONDS)):
            missing = "the waiting pull" if published else "the publish"
            raise LoadFailed(f"{missing} was not answered in {_ANSWER_SECONDS:g} s")
        for key, _ in ready:
            if key.fileobj is publisher:
                publisher.receive()
                published = True
                continue
            ack_ids = ACK_ID.findall(puller.receive())
            if ack_ids:
                result.pull_seconds.append(time.monotonic() - before)
            else:  # its wait happened to end; the message comes with the next one
                puller.send(pull)
    return ack_ids


ROLES: dict[str, Callable[[Spec], Run]] = {
    "publish": prepare_publish,
    "drain": prepare_drain,
    "lone_publish": prepare_lone_publish,
    "waiting_pull": prepare_waiting_pull,
    "open_loop": lambda spec: prepare_open_loop(spec, publish_requests(spec)),
    **PUSH_ROLES,
    **PACED_ROLES,
    **DELAY_ROLES,
    **SPREAD_ROLES,
    **CLIENT_ROLES,
    **GOOGLE_ROLES,
    **STREAM_ROLES,
    **URGENT_ROLES,
}


def _print_all(line: str) -> None:
    """As print(), whole also where standard output is not buffered and the pipe takes only a part at a time."""
    rest = f"{line}\n".encode()
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends its load processes
    spec = Spec(**json.loads(sys.argv[1]))
    try:
        run = ROLES[spec.role](spec)
        print("ready", flush=True)
        if not sys.stdin.readline():
            return  # the parent is gone
        began = time.process_time()
        result = run()
        result.processor_seconds = time.process_time() - began
    except LoadFailed as error:
        result = Result(error=str(error))
    _print_all(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
