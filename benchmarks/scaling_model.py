"""What a load costs, by a model of three parameters each: for a request, for a message, for a kilobyte.

    cost of a message = request / messages of the request + message + kilobyte * its size in kB

A request is a publish, or a pull and its ack; a message is one published, or one handed to one subscription.  Costs
are processor time, of the broker and of PostgreSQL, and bytes of the write-ahead log.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """What a message cost at one place of the grid; `batch`: messages of a request."""

    size: int
    batch: float
    cost: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The parameters."""

    request: float
    message: float
    kilobyte: float

    def of(self, size: float, batch: float) -> float:
        """Of one message."""
        return self.request / batch + self.message + self.kilobyte * size / 1_000

    def error(self, point: Point) -> float:
        """How far the model is from what was measured, as a part of that."""
        return abs(self.of(point.size, point.batch) - point.cost) / point.cost


def fit(points: Sequence[Point]) -> Cost:
    """By least squares of the relative error; what would be below nothing is nothing."""
    used = [0, 1, 2]
    while True:
        rows = [[(1 / p.batch, 1.0, p.size / 1_000)[k] / p.cost for k in used] for p in points]
        found = _solve(
            [[sum(row[i] * row[j] for row in rows) for j in range(len(used))] for i in range(len(used))],
            [sum(row[i] for row in rows) for i in range(len(used))],
        )
        if min(found) >= 0:
            values = dict(zip(used, found, strict=True))
            return Cost(*(values.get(k, 0.0) for k in range(3)))
        used.pop(found.index(min(found)))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """By elimination; the matrix is symmetric and small."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = max(range(k, len(rows)), key=lambda n: abs(rows[n][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for n in range(len(rows)):
            if n != k:
                share = rows[n][k] / rows[k][k]
                rows[n] = [a - share * b for a, b in zip(rows[n], rows[k], strict=True)]
    return [row[-1] / row[k] for k, row in enumerate(rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Costs by what is done: µs of the broker's and of PostgreSQL's processors, bytes of the write-ahead log."""

    publish_broker: Cost
    publish_postgres: Cost
    publish_wal: Cost
    deliver_broker: Cost
    deliver_postgres: Cost
    deliver_wal: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`rate`: messages a second; `fan_out`: subscriptions that get each; `response`: messages a pull gets."""

    name: str
    rate: float
    size: int
    batch: float
    fan_out: float
    response: float


class Need(NamedTuple):
    """Processors that are busy, and megabytes of the write-ahead log a second."""

    broker: float
    postgres: float
    wal: float

    def processes(self, busy: float = 0.6) -> int:
        """Broker processes, each of which can use one processor, if none is to be busier than that."""
        return max(math.ceil(self.broker / busy), 1)

    def processors(self, busy: float = 0.6) -> int:
        """Of PostgreSQL, likewise."""
        return max(math.ceil(self.postgres / busy), 1)


def need(model: Model, load: Load) -> Need:
    """What a load needs."""
    delivered = load.rate * load.fan_out

    def total(publish: Cost, deliver: Cost) -> float:
        return (
            load.rate * publish.of(load.size, load.batch) + delivered * deliver.of(load.size, load.response)
        ) / 1e6

    return Need(
        total(model.publish_broker, model.deliver_broker),
        total(model.publish_postgres, model.deliver_postgres),
        total(model.publish_wal, model.deliver_wal),
    )
