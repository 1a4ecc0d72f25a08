"""Messages that are to come later, and how late they come: roles of benchmarks/load.py.

The broker is told times of the day, so these are what is compared; load and server share a clock.
"""

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

from benchmarks.calls import ACK_ID, acknowledge, pull, stamps
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.paced_load import send_paced
from benchmarks.wire import Connection, LoadFailed, build_request


def prepare_delayed_publish(spec: Spec) -> Run:
    """Publish `rate` messages a second for `seconds`, a request each, all to come `after` seconds later."""
    connections = [Connection(spec.host, spec.port) for _ in range(spec.connections)]

    def run() -> Result:
        result = Result(started=time.monotonic())
        ahead = time.time() - time.monotonic() + spec.after

        def make(due: float) -> bytes:
            result.requests += 1
            return _delayed(spec.topic, due + ahead, spec.size)

        def answered(due: float, _: bytes) -> None:
            result.ended = time.monotonic()
            result.publish_seconds.append(result.ended - due)

        send_paced(connections, rate=spec.rate, count=int(spec.rate * spec.seconds), make=make, answered=answered)
        result.messages = result.requests
        return result

    return run


def _delayed(topic: str, at: float, size: int) -> bytes:
    """One that says in its data when it is to come, in nanoseconds of the day's clock."""
    data = base64.b64encode((b"%d " % int(at * 1e9)).ljust(size, b".")).decode()
    when = datetime.fromtimestamp(at, UTC).isoformat()
    body = {"messages": [{"data": data, "attributes": {"broker-deliver-at": when}}]}
    return build_request("POST", f"/v1/{topic}:publish", json.dumps(body).encode())


def prepare_delayed_drain(spec: Spec) -> Run:
    """Pull, with a pull that waits, and ack until there were `count`, at most for `limit_seconds`.

    Notes how long after its time each message was there.
    """
    connection = Connection(spec.host, spec.port)

    def run() -> Result:
        result = Result(started=time.monotonic())
        while result.messages < spec.count:
            if time.monotonic() > result.started + spec.limit_seconds:
                raise LoadFailed(f"{spec.count - result.messages} of {spec.count} messages did not come")
            answer = connection.call(pull(spec.subscription, wait=True))
            now = time.time()
            late = [now - at for at in stamps(answer)]
            if early := [seconds for seconds in late if seconds < 0]:
                raise LoadFailed(f"{len(early)} messages came before their time, one by {-min(early):.6f} s")
            if not late:
                continue
            connection.call(acknowledge(spec.subscription, ACK_ID.findall(answer)))
            result.requests += 1
            result.messages += len(late)
            result.pull_seconds += late
        result.ended = time.monotonic()
        return result

    return run


DELAY_ROLES: dict[str, Callable[[Spec], Run]] = {
    "delayed_publish": prepare_delayed_publish,
    "delayed_drain": prepare_delayed_drain,
}
