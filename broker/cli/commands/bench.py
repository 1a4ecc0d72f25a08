"""`broker bench`."""

import base64
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import click

from broker.client import terminal
from broker.client.api import Api, Json
from broker.client.calling import Session, calling
from broker.client.exit_codes import DONE
from broker.client.output import Shown
from broker.client.stop import Stop

_COLUMNS = ("what", "messages", "seconds", "per second", "p50 ms", "p99 ms")
_PATIENCE_SECONDS = 30.0  # without a message


@dataclass(slots=True)
class _Run:
    """Calls by several threads, each with a connection of its own."""

    took: list[float] = field(default_factory=list)
    messages: int = 0
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, took: float, messages: int) -> None:
        with self.lock:
            self.took.append(took)
            self.messages += messages

    def as_json(self) -> Json:
        ordered = sorted(self.took) or [0.0]
        return {
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "perSecond": round(self.messages / self.seconds, 1) if self.seconds else 0,
            "p50Ms": round(1000 * ordered[len(ordered) // 2], 2),
            "p99Ms": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
        }


@calling("bench", "broker bench --messages 200 --batch 20 --connections 2")
@click.option("--messages", metavar="N", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--bytes", "size", metavar="N", type=click.IntRange(1, 9_000_000), default=100, show_default=True)
@click.option(
    "--batch", metavar="N", type=click.IntRange(1, 1000), default=100, show_default=True, help="A publish."
)
@click.option("--connections", metavar="N", type=click.IntRange(1, 64), default=4, show_default=True)
def bench(session: Session, *, messages: int, size: int, batch: int, connections: int) -> int:
    """Measure a server: publishing, pulling with acks, and the way of single messages to a pull that waits.

    On a topic of its own, which is deleted at the end. p50 and p99 are of calls; of `latency`, from the publish to
    the message. This program takes processor time too: figures of a server on the same machine are low.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    topic, subscription = session.topic(name), session.subscription(name)
    session.api.call("PUT", topic, {})
    try:
        session.api.call("PUT", subscription, {"topic": topic, "ackDeadlineSeconds": 60})
        body = {"data": base64.b64encode(b"x" * size).decode()}
        found = {
            "publish": _publish(session.api, topic, body, messages, batch, connections),
            "consume": _consume(session.api, subscription, messages, connections),
            "latency": _latency(session.api, topic, subscription, body, min(100, messages)),
        }
    finally:
        _clean_up(session.api, topic, subscription)
    rows = [[what, *(f"{value:,}" for value in run.values())] for what, run in found.items()]
    session.out.show(Shown(data=found, columns=_COLUMNS, rows=rows))
    return DONE


COMMANDS = bench


def _in_threads(api: Api, connections: int, work: Callable[[Api], None]) -> float:
    """Runs `work` in so many threads, each with a connection.

    Returns how long it took, in seconds.  Raises Stop.
    """

    def run(_: int) -> None:
        with Api(api.url, api.credentials, api.ca_file) as own:
            work(own)

    began = time.monotonic()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(run, range(connections)))
    return time.monotonic() - began


def _publish(api: Api, topic: str, body: Json, messages: int, batch: int, connections: int) -> Json:
    run, left = _Run(), [messages]

    def publish(own: Api) -> None:
        while True:
            with run.lock:
                count = min(batch, left[0])
                left[0] -= count
            if not count:
                return
            began = time.monotonic()
            own.call("POST", f"{topic}:publish", {"messages": [body] * count})
            run.note(time.monotonic() - began, count)

    run.seconds = _in_threads(api, connections, publish)
    return run.as_json()


def _consume(api: Api, subscription: str, messages: int, connections: int) -> Json:
    run = _Run()

    def consume(own: Api) -> None:
        last = time.monotonic()
        while run.messages < messages:
            began = time.monotonic()
            if began - last > _PATIENCE_SECONDS:
                raise Stop(f"only {run.messages} of {messages} messages came; is anybody else reading them?")
            received = own.pull(subscription, 1000, wait=False)
            if received:
                ids = [one["ackId"] for one in received]
                own.call("POST", f"{subscription}:acknowledge", {"ackIds": ids})
                last = time.monotonic()
                run.note(last - began, len(received))

    run.seconds = _in_threads(api, connections, consume)
    return run.as_json()


def _latency(api: Api, topic: str, subscription: str, body: Json, count: int) -> Json:
    """Measures the latency of one message after the other, to a pull that waits on a connection of its own."""
    run = _Run()
    arrived = threading.Semaphore(0)
    times: list[float] = []
    failed: list[Stop] = []

    def receive() -> None:
        with Api(api.url, api.credentials, api.ca_file) as own:
            try:
                while len(times) < count:
                    for one in own.pull(subscription, 1, wait=True):
                        times.append(time.monotonic())
                        arrived.release()
                        own.call("POST", f"{subscription}:acknowledge", {"ackIds": [one["ackId"]]})
            except Stop as error:
                failed.append(error)
                arrived.release()

    reader = threading.Thread(target=receive, daemon=True)
    reader.start()
    began = time.monotonic()
    for number in range(count):
        time.sleep(0.005)  # so that the pull waits
        sent = time.monotonic()
        api.call("POST", f"{topic}:publish", {"messages": [body]})
        if not arrived.acquire(timeout=_PATIENCE_SECONDS) or failed:
            raise failed[0] if failed else Stop("a message that was published did not come")
        run.note(times[number] - sent, 1)
    run.seconds = time.monotonic() - began
    reader.join(_PATIENCE_SECONDS)
    return run.as_json()


def _clean_up(api: Api, topic: str, subscription: str) -> None:
    """Deletes the resources, and names those that cannot be deleted."""
    for name in (subscription, topic):
        try:
            api.call("DELETE", name)
        except Stop as error:
            terminal.write_line(f"broker: {name} is left: {error}", error=True)
