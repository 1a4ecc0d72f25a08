"""Load through Google's Python client over gRPC, unchanged: roles of benchmarks/load.py.

As in a program, everything is one process: the client's threads, its batches, its acks and receipts.
"""

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as Timeout
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import LoadFailed

_IN_FLIGHT = 5_000  # messages whose futures are not done: 50 of the client's batches
_BODIES = 8  # different ones
_ANSWER_SECONDS = 60.0  # longer than any answer takes that is worth measuring
_ARRIVE_SECONDS = 10.0  # for the last message, after its publish
_CHECK_SECONDS = 0.01  # between two looks at how far the client's threads are
_FIRST = b"first"


def _library(spec: Spec) -> Any:
    """google.cloud.pubsub_v1, told where the server is as programs tell it.

    Imported only where it is used: it takes a second.  What a release deprecates is not measured.
    """
    os.environ["PUBSUB_EMULATOR_HOST"] = f"{spec.host}:{spec.port}"
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    try:
        return import_module("google.cloud.pubsub_v1")
    except ImportError as error:
        raise LoadFailed(f"google-cloud-pubsub cannot be loaded: {error}") from error


@contextmanager
def _failing() -> Iterator[None]:
    """What the client raises, as LoadFailed."""
    errors = import_module("google.api_core.exceptions")
    try:
        yield
    except (errors.GoogleAPIError, Timeout) as error:
        raise LoadFailed(f"google-cloud-pubsub: {error!r}") from error


def prepare_google_publish(spec: Spec) -> Run:
    """Publish for `seconds`, at most `count` messages, with the client's batching; until all futures are done."""
    publisher = _library(spec).PublisherClient()
    bodies = [os.urandom(spec.size) for _ in range(_BODIES)]
    with _failing():  # opens the connection
        publisher.publish(spec.topic, _FIRST).result(_ANSWER_SECONDS)

    def run() -> Result:
        result = Result(started=time.monotonic())
        stop = result.started + spec.seconds
        waiting: deque[Any] = deque()
        with _failing():
            while time.monotonic() < stop and (not spec.count or result.messages < spec.count):
                waiting.append(publisher.publish(spec.topic, bodies[result.messages % _BODIES]))
                result.messages += 1
                if len(waiting) >= _IN_FLIGHT:
                    waiting.popleft().result(_ANSWER_SECONDS)
            for future in waiting:
                future.result(_ANSWER_SECONDS)
        result.ended = time.monotonic()
        publisher.transport.close()
        return result

    return run


def prepare_google_streaming(spec: Spec) -> Run:
    """Subscribe with a callback that acks, until `count` messages are acked, at most for `seconds`.

    What counts is the acks that were answered, each of which is a request of the client's for up to 1,000 messages.
    """
    library = _library(spec)

    class Counting(library.SubscriberClient):  # type: ignore[misc, name-defined]
        acked, last_ack = 0, 0.0

        def acknowledge(self, *arguments: Any, **named: Any) -> None:
            super().acknowledge(*arguments, **named)
            self.acked += len(named["ack_ids"])
            self.last_ack = time.monotonic()

    subscriber = Counting()
    with _failing():  # opens the connection
        subscriber.get_subscription(subscription=spec.subscription)

    def run() -> Result:
        result = Result(started=time.monotonic())
        result.ended = result.started
        future = subscriber.subscribe(spec.subscription, lambda message: message.ack())
        with _failing():
            while subscriber.acked < spec.count and time.monotonic() < result.started + spec.seconds:
                time.sleep(_CHECK_SECONDS)
                if future.done():
                    future.result()  # it ended by an error
            result.messages, result.ended = subscriber.acked, subscriber.last_ack
            future.cancel()
            future.result(_ANSWER_SECONDS)
        subscriber.close()
        return result

    return run


def prepare_google_pull(spec: Spec) -> Run:
    """Pull up to `max_messages` and ack them, until there were `count` messages or `seconds` are over."""
    subscriber = _library(spec).SubscriberClient()
    with _failing():
        subscriber.get_subscription(subscription=spec.subscription)

    def run() -> Result:
        result = Result(started=time.monotonic())
        result.ended = result.started
        with _failing():
            while result.messages < spec.count and time.monotonic() < result.started + spec.seconds:
                pulled = subscriber.pull(subscription=spec.subscription, max_messages=spec.max_messages)
                ack_ids = [received.ack_id for received in pulled.received_messages]
                if ack_ids:
                    subscriber.acknowledge(subscription=spec.subscription, ack_ids=ack_ids)
                    result.requests += 1
                    result.messages += len(ack_ids)
                    result.ended = time.monotonic()
        subscriber.close()
        return result

    return run


def prepare_google_latency(spec: Spec) -> Run:
    """Publish `rate` messages a second for `seconds`, each in a request of its own, and receive them by a stream.

    Notes the seconds from the call that publishes a message to the callback that has it.
    """
    library = _library(spec)
    publisher = library.PublisherClient(library.types.BatchSettings(max_messages=1))
    subscriber = library.SubscriberClient()
    delays: list[float] = []
    opened = threading.Event()

    def callback(message: Any) -> None:
        now = time.monotonic()
        if message.data == _FIRST:
            opened.set()
        else:
            delays.append(now - int(message.data.split(b" ", 1)[0]) / 1e9)
        message.ack()

    future = subscriber.subscribe(spec.subscription, callback)
    with _failing():
        publisher.publish(spec.topic, _FIRST).result(_ANSWER_SECONDS)
    if not opened.wait(_ANSWER_SECONDS):
        raise LoadFailed(f"the first message did not arrive in {_ANSWER_SECONDS:g} s")

    def run() -> Result:
        result = Result(started=time.monotonic(), messages=int(spec.rate * spec.seconds))
        with _failing():
            for number in range(result.messages):
                time.sleep(max(0.0, result.started + number / spec.rate - time.monotonic()))
                data = b"%d " % time.monotonic_ns() + os.urandom(spec.size // 2).hex().encode()
                publisher.publish(spec.topic, data[: spec.size])
            stop = time.monotonic() + _ARRIVE_SECONDS
            while len(delays) < result.messages and time.monotonic() < stop:
                time.sleep(_CHECK_SECONDS)
            result.ended = time.monotonic()
            future.cancel()
            future.result(_ANSWER_SECONDS)
        if len(delays) < result.messages:
            raise LoadFailed(f"{len(delays):,} of {result.messages:,} messages arrived in {_ARRIVE_SECONDS:g} s")
        result.pull_seconds = delays
        return result

    return run


GOOGLE_ROLES: dict[str, Callable[[Spec], Run]] = {
    "google_publish": prepare_google_publish,
    "google_streaming": prepare_google_streaming,
    "google_pull": prepare_google_pull,
    "google_latency": prepare_google_latency,
}
