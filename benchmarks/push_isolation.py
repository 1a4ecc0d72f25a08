"""Push isolation: messages that always fail must not delay the others, nor an outage what comes after it."""

import base64
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks.bench import Bench, Place, call_each, fresh_place, say
from benchmarks.push import new_lane
from benchmarks.report import Row
from benchmarks.servers import Broker, Sink
from benchmarks.wire import LoadFailed, build_request

_BATCH = 500
_ACK_DEADLINE_SECONDS = 10
_MOST_SECONDS = 5.0  # beyond twice what the healthy messages take alone
_KINDS = ("400", "500", "hang")
_RECOVERED_SECONDS = 20.0
_DOWN_SECONDS = (60.0, 600.0)
_WAITING = 3_000
_FLAPS, _FLAP_SECONDS = 6, 10.0
_NEIGHBOURS = 100


@dataclass(frozen=True, slots=True)
class _Case:
    """So many messages, of which some always fail; with a dead-letter policy of 5 attempts, or ordering keys."""

    name: str
    messages: int
    poison: int
    dead_letters: bool = False
    keys: int = 0


_CASES = (
    _Case("1 of 281 fails", 281, 1),
    _Case("1 % of 2,000 fail", 2_000, 20),
    _Case("1 % of 2,000 fail, dead-letter topic", 2_000, 20, dead_letters=True),
    _Case("10 % of 2,000 fail", 2_000, 200),
    _Case("50 % of 2,000 fail", 2_000, 1_000),
    _Case("one of 100 ordering keys fails", 2_000, 20, keys=100),
)


def push_isolation(bench: Bench) -> list[Row]:
    """How long healthy messages take beside such as always fail, and alone; ours alone."""
    sink, rows = Sink(), []
    try:
        bench.use(sink)
        bench.use(bench.broker)
        for case in _CASES:
            alone = min(_seconds(bench.broker, sink, case, "400", poison=False) for _ in range(3))
            for kind in _KINDS:
                most = 2 * alone + _MOST_SECONDS + (_ACK_DEADLINE_SECONDS if kind == "hang" else 0)
                rows.append(_row(bench.broker, sink, case, kind, alone, most))
        rows.append(_neighbours(bench.broker, sink))
    finally:
        sink.stop()
    return rows


def _row(broker: Broker, sink: Sink, case: _Case, kind: str, alone: float, most: float) -> Row:
    row = Row(measure=f"healthy messages delivered: {case.name} ({kind})", unit="s", mark=1.0, lower_is_better=True)
    try:
        row.ours = _seconds(broker, sink, case, kind)
        row.ratio = row.ours / most
        row.note = f"alone {alone:.2f} s; ratio: to {most:.1f} s"
    except LoadFailed as error:
        row.error = f"broker: {error}"
    say(f"{row.measure}: {row.ours or row.error} (alone {alone:.2f})")
    return row


def _seconds(broker: Broker, sink: Sink, case: _Case, kind: str, *, poison: bool = True) -> float:
    """From the first publish to the arrival of the last healthy message.  Raises LoadFailed."""
    lane = new_lane("isolation")
    with _pushed_to(broker, sink.url(lane, poison=kind), case) as place:
        began = time.monotonic()
        _publish(broker, place, _messages(case, poison))
        healthy = case.messages - case.poison
        arrived = sink.wait(lane, healthy, 120)
        if arrived.distinct < healthy:
            raise LoadFailed(f"{arrived.distinct:,} of {healthy:,} healthy messages had arrived after 120 s")
        return arrived.last - began


class _pushed_to:  # noqa: N801 - a context manager, as fresh_place
    """A new topic with a push subscription, deleted at the end."""

    def __init__(self, broker: Broker, endpoint: str, case: _Case) -> None:
        self._broker = broker
        name = new_lane("bench")
        self._place = Place(f"projects/bench/topics/{name}", [f"projects/bench/subscriptions/{name}"])
        self._dead = f"projects/bench/topics/{name}-dead"
        self._body: dict[str, object] = {
            "topic": self._place.topic,
            "ackDeadlineSeconds": _ACK_DEADLINE_SECONDS,
            "pushConfig": {"pushEndpoint": endpoint},
            "enableMessageOrdering": case.keys > 0,
        }
        if case.dead_letters:
            self._body["deadLetterPolicy"] = {"deadLetterTopic": self._dead, "maxDeliveryAttempts": 5}

    def __enter__(self) -> Place:
        put = [(topic, b"") for topic in (self._place.topic, self._dead)]
        put.append((self._place.subscriptions[0], json.dumps(self._body).encode()))
        call_each(self._broker, [build_request("PUT", f"/v1/{name}", body) for name, body in put])
        return self._place

    def __exit__(self, *_: object) -> None:
        gone = (*self._place.subscriptions, self._place.topic, self._dead)
        call_each(self._broker, [build_request("DELETE", f"/v1/{name}", b"") for name in gone])


def _messages(case: _Case, poison: bool) -> list[dict[str, object]]:
    """In random order, the same each time.  With keys those that fail are of one key."""
    kinds = ["poison"] * (case.poison if poison else 0) + ["healthy"] * (case.messages - case.poison)
    chance = random.Random(1)
    chance.shuffle(kinds)
    messages: list[dict[str, object]] = []
    for number, kind in enumerate(kinds):
        message: dict[str, object] = {"data": base64.b64encode(f"{kind} {number}".encode()).decode()}
        if case.keys:
            message["orderingKey"] = "poison" if kind == "poison" else f"k{chance.randrange(1, case.keys)}"
        messages.append(message)
    return messages


def _publish(broker: Broker, place: Place, messages: Sequence[dict[str, object]]) -> None:
    """In batches, each of one ordering key or none."""
    by_key = [list(run) for _, run in groupby(messages, key=lambda message: message.get("orderingKey"))]
    bodies = [run[start : start + _BATCH] for run in by_key for start in range(0, len(run), _BATCH)]
    path = f"/v1/{place.topic}:publish"
    call_each(broker, [build_request("POST", path, json.dumps({"messages": body}).encode()) for body in bodies])


def _neighbours(broker: Broker, sink: Sink) -> Row:
    """100 subscriptions push to one origin; to one of them a message that hangs is pushed again and again."""
    case = _Case(f"{_NEIGHBOURS} subscriptions of one origin, one of them poisoned", _NEIGHBOURS, 0)
    row = Row(measure=f"publish → push: {case.name}", unit="s", mark=1.0, lower_is_better=True)
    lane = new_lane("neighbours")
    try:
        with (
            fresh_place(broker, _NEIGHBOURS - 1, endpoint=sink.url(lane, poison="hang")) as place,
            _pushed_to(broker, sink.url(new_lane("poisoned"), poison="hang"), case) as poisoned,
        ):
            alone = _one_each(broker, sink, place, lane)
            _publish(broker, poisoned, [{"data": base64.b64encode(b"poison").decode()}] * 20)
            time.sleep(_ACK_DEADLINE_SECONDS + 1)
            row.ours = _one_each(broker, sink, place, lane)
            most = 2 * alone + _MOST_SECONDS
            row.ratio, row.note = row.ours / most, f"alone {alone:.2f} s; ratio: to {most:.1f} s"
    except LoadFailed as error:
        row.error = f"broker: {error}"
    say(f"{row.measure}: {row.ours or row.error}")
    return row


def _one_each(broker: Broker, sink: Sink, place: Place, lane: str) -> float:
    sink.arrivals(lane, "/forget")
    began = time.monotonic()
    _publish(broker, place, [{"data": base64.b64encode(b"healthy").decode()}])
    arrived = sink.wait(lane, len(place.subscriptions), 60)
    if arrived.distinct < len(place.subscriptions):
        raise LoadFailed(f"{arrived.distinct} of {len(place.subscriptions)} had arrived after 60 s")
    return arrived.last - began


# --- outages -----------------------------------------------------------------------------------------------------


def push_recovery(bench: Bench) -> list[Row]:
    """How soon messages are delivered after an outage, and what an endpoint gets meanwhile; ours alone."""
    sink, rows = Sink(), []
    try:
        bench.use(sink)
        bench.use(bench.broker)
        for seconds in _DOWN_SECONDS:
            rows += _outage(bench.broker, sink, seconds)
        rows.append(_flapping(bench.broker, sink))
    finally:
        sink.stop()
    return rows


def _outage(broker: Broker, sink: Sink, seconds: float) -> list[Row]:
    lane, case = new_lane("outage"), _Case("outage", _WAITING, 0)
    recovered = Row(measure=f"{_WAITING:,} messages delivered after an outage of {seconds:g} s", unit="s", mark=1.0)
    recovered.lower_is_better = True
    first = Row(measure=f"first push after an outage of {seconds:g} s", unit="s", mark=1.0, lower_is_better=True)
    got = Row(measure=f"requests to an endpoint that is down, a minute of {seconds:g} s", unit="requests")
    try:
        with _pushed_to(broker, sink.url(lane, poison="400"), case) as place:
            sink.arrivals(lane, "/down")
            began = time.monotonic()
            _publish(broker, place, _messages(case, False))
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            down = sink.arrivals(lane, "/up")
            up = time.monotonic()
            arrived = sink.wait(lane, _WAITING, 6 * _RECOVERED_SECONDS)
            if arrived.distinct < _WAITING:
                raise LoadFailed(
                    f"{arrived.distinct:,} of {_WAITING:,} had arrived after {6 * _RECOVERED_SECONDS} s"
                )
            recovered.ours, first.ours = arrived.last - up, arrived.first - up
            recovered.ratio, first.ratio = recovered.ours / _RECOVERED_SECONDS, first.ours / 11
            recovered.note, first.note = "ratio: to 20 s", "ratio: to 11 s"
            minutes = [0] * max(1, round(seconds / 60))
            for at in down.rejected:
                minutes[min(int((at - began) / 60), len(minutes) - 1)] += 1
            got.ours, got.note = max(minutes), f"by the minute: {', '.join(map(str, minutes))}"
    except LoadFailed as error:
        recovered.error = f"broker: {error}"
    rows = [first, recovered, got]
    for row in rows:
        say(f"{row.measure}: {row.ours or row.error} {row.note}")
    return rows


def _flapping(broker: Broker, sink: Sink) -> Row:
    """The endpoint is down every other 10 s; messages are published all the time."""
    lane, case = new_lane("flapping"), _Case("flapping", int(_FLAPS * _FLAP_SECONDS) * 20, 0)
    row = Row(measure=f"delivered after the last of {_FLAPS // 2} short outages", unit="s", mark=1.0)
    row.lower_is_better = True
    try:
        with _pushed_to(broker, sink.url(lane, poison="400"), case) as place:
            messages = _messages(case, False)
            for number in range(int(_FLAPS * _FLAP_SECONDS)):
                if number % _FLAP_SECONDS == 0:
                    sink.arrivals(lane, "/up" if number // _FLAP_SECONDS % 2 else "/down")
                _publish(broker, place, messages[20 * number : 20 * number + 20])
                time.sleep(1)
            ended = time.monotonic()
            arrived = sink.wait(lane, case.messages, 120)
            if arrived.distinct < case.messages:
                raise LoadFailed(f"{arrived.distinct:,} of {case.messages:,} had arrived after 120 s")
            row.ours = max(arrived.last - ended, 0.0)
            row.ratio, row.note = row.ours / _RECOVERED_SECONDS, "ratio: to 20 s"
    except LoadFailed as error:
        row.error = f"broker: {error}"
    say(f"{row.measure}: {row.ours if row.ours is not None else row.error}")
    return row
