"""What is counted becomes points, each once, of all brokers together."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from broker.features.history import recorder as recording
from broker.features.history.rows import find_series
from broker.model.errors import Unavailable
from broker.observability.metrics.families import (
    PUBLISH_REQUESTS,
    PUBLISHED_BYTES,
    PUBLISHED_MESSAGES,
    PUSH_REQUESTS,
    SENT,
)
from tests.features.history.conftest import AGE, PUBLISHED, SUBSCRIPTION, TOPIC, UNDELIVERED, Recorded
from tests.features.history.conftest import SENT as SENT_METRIC

SECOND = timedelta(seconds=1)


async def test_counters_are_points_of_ten_seconds_of_the_resource_and_its_project(recorded: Recorded) -> None:
    process, start = recorded.process(), recorded.clock.time
    for count in (3, 0, 4):
        process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += count
        process.counters.topic(f"{TOPIC}2")[PUBLISHED_MESSAGES] += 1
        await recorded.pass_by(process)
    assert await recorded.amounts() == {start: 3, start + 20 * SECOND: 4}
    every = {start: 4, start + 10 * SECOND: 1, start + 20 * SECOND: 5}
    assert await recorded.amounts(resource="") == every
    assert await recorded.amounts(resource="projects/p") == every
    assert await recorded.amounts(SENT_METRIC, "") == {}


async def test_what_all_brokers_count_is_added_up(recorded: Recorded) -> None:
    start = recorded.clock.time
    for process in (recorded.process(), recorded.process(), recorded.process()):
        recorded.clock.time = start
        process.counters.subscription(SUBSCRIPTION)[SENT] += 5
        await recorded.pass_by(process)
    assert await recorded.amounts(SENT_METRIC, SUBSCRIPTION) == {start: 15}


async def test_each_value_of_a_label_is_a_series(recorded: Recorded) -> None:
    process = recorded.process()
    process.counters.subscription(SUBSCRIPTION)[PUSH_REQUESTS["ack"]] += 2
    process.counters.subscription(SUBSCRIPTION)[PUSH_REQUESTS["unreachable"]] += 1
    await recorded.pass_by(process)
    history = await recorded.read("pubsub_subscription_push_requests_total", SUBSCRIPTION)
    assert [(series.label, series.points[0].amount) for series in history.series] == [
        ("ack", 2),
        ("unreachable", 1),
    ]


async def test_a_resource_without_traffic_writes_no_row(recorded: Recorded) -> None:
    process = recorded.process()
    process.counters.topic(TOPIC)
    await recorded.pass_by(process)
    assert (await recorded.count("history_points"), await recorded.count("history_series")) == (0, 0)


async def test_what_was_counted_before_the_process_began_is_no_point(recorded: Recorded) -> None:
    first, start = recorded.process(), recorded.clock.time
    first.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 7
    second = recorded.process(first.counters)  # one that is started again counts in the same memory
    second.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 1
    await recorded.pass_by(second)
    assert await recorded.amounts() == {start: 1}


@pytest.mark.parametrize("was_committed", [True, False])
async def test_a_write_without_an_answer_is_neither_lost_nor_done_twice(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, was_committed: bool
) -> None:
    insert = recording.insert_points

    async def insert_without_answer(*given: Any, **named: Any) -> None:
        if was_committed:
            await insert(*given, **named)
        raise Unavailable("The connection was lost.")

    process = recorded.process()
    process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 3
    with monkeypatch.context() as patch:
        patch.setattr(recording, "insert_points", insert_without_answer)
        with pytest.raises(Unavailable):
            await recorded.pass_by(process)
    process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 4
    await recorded.pass_by(process)
    await recorded.pass_by(process)
    assert sum((await recorded.amounts()).values()) == 7
    assert len(await recorded.amounts()) == 1 + was_committed


async def test_series_keep_their_ids_and_note_that_they_are_used(recorded: Recorded) -> None:
    process, started = recorded.process(), recorded.clock.time
    for _ in range(3):
        block = process.counters.topic(TOPIC)
        for slot in (PUBLISHED_MESSAGES, PUBLISHED_BYTES, PUBLISH_REQUESTS["OK"]):
            block[slot] += 1
        await recorded.pass_by(process)
        recorded.clock.time += timedelta(days=1)
    async with recorded.database.connection() as connection:
        rows = await (
            await connection.execute("SELECT series_id, resource, used_at FROM history_series")
        ).fetchall()
    assert sorted(row[0] for row in rows) == [1, 2, 3, 4, 5, 6]
    assert Counter(row[1] for row in rows) == {TOPIC: 3, "projects/p": 3}
    assert min(row[2] for row in rows) > started + timedelta(days=1)


async def test_two_processes_that_name_a_series_at_once_get_the_same_id(recorded: Recorded) -> None:
    keys = [recording.SeriesKey(f"{TOPIC}{number}", PUBLISHED, "") for number in range(50)]
    database, now = recorded.database, recorded.clock.time
    async with database.hot() as one, database.hot() as other:
        first = await find_series(one, keys, now=now)
        assert await find_series(other, keys[::-1], now=now) == first
    assert len(set(first.values())) == 50


async def test_lags_are_recorded_once_whichever_broker_does(recorded: Recorded) -> None:
    start = recorded.clock.time
    samples = [
        ("projects/p", 10, 30, 0),
        ("projects/p", 20, 90, 2),
        ("projects/p", 0, None, 0),
        ("projects/q", 5, 7, 0),
    ]
    for number, (project, undelivered, age, dead_letters) in enumerate(samples, 1):
        await recorded.sample(
            number,
            name=f"{project}/subscriptions/s{number}",
            undelivered=undelivered,
            oldest=None if age is None else start - age * SECOND,
            outstanding=number % 2,
            dead_letters=dead_letters,
        )
    for process in (recorded.process(), recorded.process()):
        await process.recorder.record_lag(start)
    recorded.clock.time += 10 * SECOND
    assert await recorded.amounts(UNDELIVERED, "projects/p/subscriptions/s1") == {start: 10}
    assert await recorded.amounts(UNDELIVERED, "") == {start: 30}
    assert await recorded.amounts(AGE, "projects/p/subscriptions/s2") == {start: 90}
    assert await recorded.amounts(AGE, "") == {start: 90}
    assert await recorded.amounts("pubsub_subscription_num_dead_letter_messages", "") == {start: 2}
    assert await recorded.amounts("pubsub_subscription_num_outstanding_messages", "") == {start: 2}


async def test_a_sample_of_long_ago_is_not_recorded(recorded: Recorded) -> None:
    """The sampler has stopped: nobody knows what is waiting now."""
    await recorded.sample(undelivered=9)
    recorded.clock.time += timedelta(minutes=6)
    await recorded.process().recorder.record_lag(recorded.clock.time)
    assert await recorded.count("history_points") == 0


async def test_a_subscription_at_rest_keeps_its_gauges_while_passes_end(recorded: Recorded) -> None:
    """Its sample is not written again: its dead letters are still there."""
    await recorded.sample(undelivered=0, dead_letters=3)
    recorded.clock.time += timedelta(minutes=6)
    async with recorded.database.connection() as connection:
        await connection.execute("DELETE FROM lag_passes")
        now = recorded.clock.time
        await connection.execute("INSERT INTO lag_passes (sampled_at, next_at) VALUES (%s, %s)", [now, now])
    await recorded.process().recorder.record_lag(now)
    recorded.clock.time += 10 * SECOND
    found = await recorded.amounts("pubsub_subscription_num_dead_letter_messages", SUBSCRIPTION)
    assert list(found.values()) == [3]
