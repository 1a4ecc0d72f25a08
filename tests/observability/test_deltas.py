"""What was counted since the last reading is found, each count once."""

import os
import random
from collections import Counter

import pytest

from broker.observability.metrics.book import CounterBook
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.deltas import CounterDeltas
from broker.observability.metrics.families import ACKED, LAYOUTS, SENT

COLUMNS = {"subscription": [(SENT, 1), (ACKED, 2)]}


def read(deltas: CounterDeltas) -> dict[tuple[str, int], int]:
    steps = deltas.read()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: dict[tuple[str, int], int] = end.value
        return found


def name_of(number: int) -> str:
    return f"projects/p/subscriptions/s{number}"


def test_each_count_is_read_once_whatever_process_counts_and_whatever_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    chance = random.Random(1)
    book = CounterBook(LAYOUTS, processes=2, capacity=300)
    other = CounterBook(LAYOUTS, processes=2, capacity=300, _file=os.dup(book._file))
    processes = [Counters(book, process=0), Counters(other, process=1)]
    deltas = CounterDeltas(book, COLUMNS)
    counted: Counter[tuple[str, int]] = Counter()
    found: Counter[tuple[str, int]] = Counter()
    for _ in range(300):
        if chance.random() < 0.1:
            found.update(read(deltas))  # what is emptied was read: it was gone for two minutes
            kept = {name_of(number) for number in range(250) if chance.random() < 0.8}
            for _ in range(2):
                book.keep_only("subscription", kept)
            for process in processes:
                process.forget(None)
        for _ in range(20):
            name, (slot, column) = name_of(chance.randrange(250)), chance.choice([(SENT, 1), (ACKED, 2)])
            chance.choice(processes).subscription(name)[slot] += 3
            counted[name, column] += 3
        if chance.random() < 0.3:
            found.update(read(deltas))
    found.update(read(deltas))
    assert found == counted
    assert read(deltas) == {}


def test_what_was_counted_before_is_not_read() -> None:
    counters = Counters()
    counters.subscription(name_of(1))[SENT] += 5
    deltas = CounterDeltas(counters.book, COLUMNS)
    assert read(deltas) == {}
    counters.subscription(name_of(1))[SENT] += 1
    assert read(deltas) == {(name_of(1), 1): 1}
