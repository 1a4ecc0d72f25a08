"""Load at an even pace, and load that waits: roles of benchmarks/load.py.

What falls due while all connections are busy is sent as soon as one is free, and its time counts from when it was
due: a server that stalls is not spared the requests that would have come meanwhile.
"""

import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.calls import ACK_ID, acknowledge, publish_requests, pull
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import Connection, LoadFailed

_EMPTY_PAUSE_SECONDS = 0.01
_ANSWER_SECONDS = 60.0  # longer than any answer takes that is worth measuring


def send_paced(
    connections: Sequence[Connection],
    *,
    rate: float,
    count: int,
    make: Callable[[float], bytes],
    answered: Callable[[float, bytes], bytes | None],
) -> None:
    """Send `count` requests, `rate` a second, and wait for all answers.

    `make` gets the monotonic time at which its request is due; `answered` gets that time and the answer, and gives
    what is to be sent next on the same connection, if anything.  Raises LoadFailed.
    """
    began, sent = time.monotonic(), 0
    free, due_of = deque(connections), dict.fromkeys(connections, 0.0)
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        while sent < count or len(free) < len(connections):
            due = began + sent / rate
            early = due - time.monotonic()
            if sent < count and free and early <= 0:
                connection = free.popleft()  # the one that was idle for the longest: none is ever idle for long
                due_of[connection] = due
                connection.send(make(due))
                sent += 1
                continue
            ready = selector.select(early if sent < count and free else _ANSWER_SECONDS)
            if not ready and not (sent < count and free):
                raise LoadFailed(
                    f"{len(connections) - len(free)} requests were not answered in {_ANSWER_SECONDS:g} s"
                )
            for key, _ in ready:
                connection = key.data
                following = answered(due_of[connection], connection.receive())
                if following is None:
                    free.append(connection)
                else:
                    connection.send(following)


def prepare_paced_batches(spec: Spec) -> Run:
    """Publish `rate` batches a second for `seconds`; note how long after it was due each was answered."""
    requests = publish_requests(spec)
    connections = [Connection(spec.host, spec.port) for _ in range(spec.connections)]

    def run() -> Result:
        result = Result(started=time.monotonic())

        def make(_: float) -> bytes:
            result.requests += 1
            return requests[result.requests % len(requests)]

        def answered(due: float, _: bytes) -> None:
            result.ended = time.monotonic()
            result.publish_seconds.append(result.ended - due)

        send_paced(connections, rate=spec.rate, count=int(spec.rate * spec.seconds), make=make, answered=answered)
        result.messages = result.requests * spec.batch
        return result

    return run


def prepare_paced_drain(spec: Spec) -> Run:
    """Pull and ack `rate` messages a second until there were `count`, at most for `limit_seconds`."""
    connection = Connection(spec.host, spec.port)

    def run() -> Result:
        result = Result(started=time.monotonic())
        result.ended = result.started
        stop = result.started + spec.limit_seconds
        while result.messages < spec.count and time.monotonic() < stop:
            early = result.started + result.messages / spec.rate - time.monotonic()
            if early > 0:
                time.sleep(early)
            ack_ids = ACK_ID.findall(connection.call(pull(spec.subscription)))
            if not ack_ids:
                time.sleep(_EMPTY_PAUSE_SECONDS)
                continue
            connection.call(acknowledge(spec.subscription, ack_ids))
            result.requests += 1
            result.messages += len(ack_ids)
            result.ended = time.monotonic()
        return result

    return run


def prepare_idle_pulls(spec: Spec) -> Run:
    """A waiting pull on each of the `fan` subscriptions of `topics` topics, until stdin ends.

    It is sent again whenever its wait ends.  Nothing must come.
    """
    names = [f"{spec.subscription}-{t}-{number}" for t in range(spec.topics) for number in range(spec.fan)]
    waiting = {Connection(spec.host, spec.port): pull(name, wait=True) for name in names}

    def run() -> Result:
        result = Result(started=time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin, selectors.EVENT_READ, None)
            for connection, request in waiting.items():
                selector.register(connection, selectors.EVENT_READ, connection)
                connection.send(request)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        result.ended = time.monotonic()
                        return result
                    if ACK_ID.search(key.data.receive()):
                        raise LoadFailed("a pull that was to wait brought messages")
                    key.data.send(waiting[key.data])
                    result.requests += 1

    return run


PACED_ROLES: dict[str, Callable[[Spec], Run]] = {
    "paced_batches": prepare_paced_batches,
    "paced_drain": prepare_paced_drain,
    "idle_pulls": prepare_idle_pulls,
}
