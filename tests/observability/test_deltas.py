"""What was counted since the last reading is found, each count once."""

import multiprocessing
import os
import random
from collections import Counter
from multiprocessing.synchronize import Event

import pytest

from broker.observability.metrics.book import CounterBook
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.deltas import CounterDeltas
from broker.observability.metrics.families import ACKED, LAYOUTS, SENT
from tests.fixtures.broker import PATIENCE_SECONDS

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


def test_what_is_counted_for_a_deleted_resource_after_its_entry_was_emptied_is_read_under_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    counters = Counters()
    deltas = CounterDeltas(counters.book, COLUMNS)
    in_flight = counters.subscription(name_of(1))
    for _ in range(2):
        counters.book.keep_only("subscription", ())
    in_flight[SENT] += 1
    assert read(deltas) == {}


def test_a_name_is_never_missing_to_one_process_while_another_looks_for_what_is_gone() -> None:
    book = CounterBook(LAYOUTS, processes=2)
    Counters(book).subscription(name_of(1))
    context = multiprocessing.get_context("spawn")
    looking, stop = context.Event(), context.Event()
    child = context.Process(target=look_for_the_gone, args=(book, looking, stop))
    child.start()
    try:
        assert looking.wait(PATIENCE_SECONDS)
        seen = {(book.name("subscription", 1), book.taken("subscription")) for _ in range(200_000)}
    finally:
        stop.set()
        child.join()
    assert seen == {(name_of(1), 1)}


def look_for_the_gone(book: CounterBook, looking: Event, stop: Event) -> None:
    """Marks a name as gone and as there again, until it is stopped."""
    looking.set()
    while not stop.is_set():
        for _ in range(1_000):
            book.keep_only("subscription", ())
            book.keep_only("subscription", {name_of(1)})
