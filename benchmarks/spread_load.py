"""Load on very many topics and subscriptions, a little on each: roles of benchmarks/load.py."""

import itertools
import json
import random
import selectors
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.calls import ACK_ID, acknowledge, pull, stamped_publish, stamps
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.paced_load import send_paced
from benchmarks.push_load import call_all
from benchmarks.wire import Connection, build_request

SINGLES = 10  # single publishes for each that has a batch of `spec.batch`


def subscription_names(spec: Spec, first: int, last: int) -> list[str]:
    """The subscriptions of some of the topics."""
    return [f"{spec.subscription}-{topic}-{n}" for topic in range(first, last) for n in range(spec.fan)]


def _connections(spec: Spec) -> list[Connection]:
    return [Connection(spec.host, spec.port) for _ in range(spec.connections)]


def prepare_spread_create(spec: Spec) -> Run:
    """Create the topics, then their subscriptions."""
    connections = _connections(spec)

    def topics() -> Iterator[bytes]:
        for number in range(spec.topics):
            yield build_request("PUT", f"/v1/{spec.topic}-{number}")

    def subscriptions() -> Iterator[bytes]:
        for name in subscription_names(spec, 0, spec.topics):
            number = name.rsplit("-", 2)[1]
            config = {"topic": f"{spec.topic}-{number}", "ackDeadlineSeconds": 600}
            yield build_request("PUT", f"/v1/{name}", json.dumps(config).encode())

    def run() -> Result:
        first = call_all(connections, topics(), lambda _: 1)
        second = call_all(connections, subscriptions(), lambda _: 1)
        first.messages, first.ended = first.messages + second.messages, second.ended
        return first

    return run


def prepare_spread_publish(spec: Spec) -> Run:
    """Publish `rate` requests a second for `seconds`, each to the next topic; of 11, one has `batch` messages."""
    connections = _connections(spec)
    topics = list(range(spec.topics))
    random.Random(1).shuffle(topics)
    sizes = itertools.cycle([1] * SINGLES + [spec.batch])
    turns = itertools.cycle(topics)

    def run() -> Result:
        result = Result(started=time.monotonic())

        def make(due: float) -> bytes:
            size = next(sizes)
            result.requests += 1
            result.messages += size
            return stamped_publish(f"{spec.topic}-{next(turns)}", spec.size, due, size)

        def answered(due: float, _: bytes) -> None:
            result.ended = time.monotonic()
            result.publish_seconds.append(result.ended - due)

        count = int(spec.rate * spec.seconds)
        send_paced(connections, rate=spec.rate, count=count, make=make, answered=answered)
        return result

    return run


def prepare_spread_poll(spec: Spec) -> Run:
    """Poll the subscriptions of the topics from `first` on by turns, `rate` a second for `seconds`; ack what came.

    `pull_seconds` has how long after it was due each poll was answered.
    """
    connections = _connections(spec)
    names = subscription_names(spec, spec.first, spec.topics)
    random.Random(2).shuffle(names)

    def run() -> Result:
        result = Result(started=time.monotonic())
        turns, asked = itertools.cycle(names), dict[float, str]()

        def make(due: float) -> bytes:
            asked[due] = next(turns)
            return pull(asked[due])

        def answered(due: float, answer: bytes) -> bytes | None:
            name = asked.pop(due, None)
            if name is None:  # of an ack
                return None
            result.requests += 1
            result.pull_seconds.append(time.monotonic() - due)
            ack_ids = ACK_ID.findall(answer)
            _count(spec, result, ack_ids)
            return acknowledge(name, ack_ids) if ack_ids else None

        count = int(spec.rate * spec.seconds)
        send_paced(connections, rate=spec.rate, count=count, make=make, answered=answered)
        return result

    return run


def prepare_spread_wait(spec: Spec) -> Run:
    """A waiting pull on each subscription of the topics before `first`, for `seconds`; what comes is acked.

    `pull_seconds` has the time from when each message's publish was due to the answer to its ack.
    """
    names = subscription_names(spec, 0, spec.first)
    connections = {Connection(spec.host, spec.port): name for name in names}

    def run() -> Result:
        result = Result(started=time.monotonic())
        stop = result.started + spec.seconds
        published_at: dict[Connection, Sequence[float]] = {}  # of what is being acked there
        with selectors.DefaultSelector() as selector:
            for connection, name in connections.items():
                selector.register(connection, selectors.EVENT_READ, connection)
                connection.send(pull(name, wait=True))
            while (left := stop - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    connection, name = key.data, connections[key.data]
                    answer = connection.receive()
                    if times := published_at.pop(connection, ()):
                        now = time.monotonic()
                        result.pull_seconds += [now - at for at in times]
                    ack_ids = ACK_ID.findall(answer)
                    if ack_ids:
                        published_at[connection] = stamps(answer)
                        _count(spec, result, ack_ids)
                    connection.send(acknowledge(name, ack_ids) if ack_ids else pull(name, wait=True))
        return result

    return run


def _count(spec: Spec, result: Result, ack_ids: Sequence[bytes]) -> None:
    result.ended = time.monotonic()
    result.messages += len(ack_ids)
    if spec.after <= result.ended - result.started < spec.until:
        result.steady += len(ack_ids)


SPREAD_ROLES: dict[str, Callable[[Spec], Run]] = {
    "spread_create": prepare_spread_create,
    "spread_publish": prepare_spread_publish,
    "spread_poll": prepare_spread_poll,
    "spread_wait": prepare_spread_wait,
}
