"""Claims of a subscription with a filter (A3)."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.claiming.transaction import fresh
from broker.core.claiming.transaction.request import More
from broker.core.filtering.jsonpath import filter_paths, to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.core.log.messages import append_messages, encode_messages
from broker.core.records.journal_of_message import read_settlement
from broker.model.journal import Event
from broker.model.message import NewMessage
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.fixtures.push_log import PushLog

PROD = to_jsonpath(parse_filter('attributes.env = "prod"'))


async def publish(log: Log, *envs: str, now: datetime | None = None) -> None:
    """A message for each; its data is its number and its environment."""
    messages = [
        NewMessage(data=f"{number}{env}".encode(), attributes={"env": env}) for number, env in enumerate(envs)
    ]
    async with log.session() as session:
        batch = encode_messages(messages)
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=now or log.start)


async def next_seq(log: Log) -> int:
    [(seq,)] = await log.rows("SELECT next_seq FROM cursors")
    return int(seq)


async def test_only_matching_messages_are_delivered_and_the_others_are_passed(log: Log) -> None:
    await publish(log, "prod", "test", "prod", "test")
    assert await log.pull_texts(filter_path=PROD) == ["0prod", "2prod"]
    assert await next_seq(log) == 5
    assert await log.pull_texts(filter_path=PROD) == []


async def test_a_pull_that_is_full_does_not_pass_what_it_has_not_seen(log: Log) -> None:
    await publish(log, "test", "prod", "test", "prod", "prod")
    assert await log.pull_texts(1, filter_path=PROD) == ["1prod"]
    assert await next_seq(log) == 3
    assert await log.pull_texts(filter_path=PROD) == ["3prod", "4prod"]


async def test_a_byte_budget_ends_a_filtered_read_too(log: Log) -> None:
    await publish(log, *["prod", "test"] * 10)
    pulled = []
    while batch := await log.pull_texts(filter_path=PROD, max_bytes=500):
        assert len(batch) < 10
        pulled += batch
    assert pulled == [f"{number}prod" for number in range(0, 20, 2)]


async def test_a_long_stretch_without_a_match_is_passed_in_bounded_steps(log: Log, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(fresh, "MAX_SCANNED", 10)
    await publish(log, *["test"] * 75, "prod")
    claimed = await log.claim(filter_path=PROD)
    assert (texts(claimed.deliveries[0]), claimed.rest) == ([], More())
    assert await next_seq(log) == 11
    while not claimed.deliveries[0]:
        assert claimed.rest == More()
        claimed = await log.claim(filter_path=PROD)
    assert texts(claimed.deliveries[0]) == ["75prod"]


async def test_matches_far_apart_are_redelivered_and_acked_like_any_other(log: Log) -> None:
    await publish(log, *(["prod"] + ["test"] * 50) * 4)
    deliveries = await log.pull(filter_path=PROD)
    assert [len(delivery.messages) for delivery in deliveries] == [1, 1, 1, 1]
    await log.acknowledge(deliveries[1])
    again = await log.pull(filter_path=PROD, now=log.start + ACK_DEADLINE)
    assert texts(again) == ["0prod", "102prod", "153prod"]
    assert {delivery.attempt_number for delivery in again} == {2}


# --- filters that read bodies -------------------------------------------------------------------------------------

LARGE = filter_paths(parse_filter("attributes:order AND body.total > 100"))._asdict()


async def publish_orders(log: Log, *totals: int | str, key: str = "", note: str = "") -> None:
    """A message for each, with the attribute `order` if its total is a number."""
    messages = [
        NewMessage(
            data=json.dumps({"total": total, "note": note}).encode(),
            attributes={"order": ""} if isinstance(total, int) else {},
            ordering_key=key,
        )
        for total in totals
    ]
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[encode_messages(messages)], now=log.start)


async def totals(log: Log, **options: Any) -> list[int]:
    return [json.loads(text)["total"] for text in await log.pull_texts(**LARGE, **options)]


async def test_messages_whose_bodies_match_are_delivered_and_delivered_again(log: Log) -> None:
    await publish_orders(log, 1, 101, 100, 500, "101")
    assert await totals(log) == [101, 500]
    assert await next_seq(log) == 6
    assert await totals(log, now=log.start + ACK_DEADLINE) == [101, 500]
    other = filter_paths(parse_filter("body.total < 200"))._asdict()
    later = log.start + 2 * ACK_DEADLINE
    assert [json.loads(text)["total"] for text in await log.pull_texts(now=later, **other)] == [101]


async def test_a_body_that_does_not_match_does_not_hold_its_ordering_key_up(log: Log) -> None:
    await publish_orders(log, 1, 101, 102, 2, 103, key="k")
    [first] = await log.pull(1, ordered=True, **LARGE)
    assert await totals(log, ordered=True) == []
    async with log.session() as session:
        acks = {log.name(first): {0}}
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)
    assert await totals(log, ordered=True) == [102, 103]


async def test_what_waits_for_its_key_expires_only_if_its_body_matched(log: Log) -> None:
    await publish_orders(log, 101, 1, 102, key="k")
    [first] = await log.pull(3, ordered=True, max_run=1, **LARGE)
    async with log.session() as session:
        acks = {log.name(first): {0}}
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)
    assert await totals(log, now=log.start + timedelta(minutes=1), ordered=True, retention=SECOND) == []
    async with log.session() as session:
        of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
        attribution = [await read_settlement(session, seq=seq, **of) for seq in (2, 3)]
    assert [entry and entry.event for entry in attribution] == [None, Event.EXPIRED]


async def test_what_expired_of_a_row_is_recorded_although_the_rest_of_the_row_is_retained(log: Log) -> None:
    await publish(log, "prod", "test")
    await publish(log, "prod", "test", now=log.start + 10 * SECOND)
    assert len(await log.pull_texts(now=log.start + 10 * SECOND)) == 4
    due = {"now": log.start + 21 * SECOND, "retention": 15 * SECOND}
    assert await log.pull_texts(**due, filter_path=PROD) == ["0prod"]
    async with log.session() as session:
        of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
        settlements = [await read_settlement(session, seq=seq, **of) for seq in range(1, 5)]
    events = [entry and entry.event for entry in settlements]
    assert events == [Event.EXPIRED, Event.EXPIRED, None, None], "the filter leaves the last one out"


async def test_a_scan_ends_when_it_has_read_as_many_bytes_as_it_may(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish_orders(log, *range(75), 101, 102, note="x" * 2_000)
    monkeypatch.setattr(fresh, "MAX_READ_BYTES", 20_000)
    claimed = await log.claim(**LARGE)
    assert (texts(claimed.deliveries[0]), claimed.rest) == ([], More())
    assert 5 < await next_seq(log) < 15
    while not claimed.deliveries[0]:
        assert claimed.rest == More()
        claimed = await log.claim(**LARGE)
    assert await totals(log) == []
    assert await next_seq(log) == 78


async def test_fewer_messages_are_scanned_where_bodies_are_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "MAX_SCANNED", 100)
    await publish_orders(log, *[0] * 75, 101)
    assert (await log.claim(**LARGE)).rest == More()
    assert await next_seq(log) == 11
    assert await totals(log) == [101]


async def test_places_with_filters_of_each_kind_are_looked_at_in_one_claim(push_log: PushLog) -> None:
    await push_log.subscribe(4 - len(push_log.ids))
    await publish_orders(push_log.log, 1, 101)
    paths: list[dict[str, str | None]] = [LARGE, {}, {"filter_path": PROD}, {**LARGE, "body_path": None}]
    claimed = await push_log.claim_for(*[push_log.target(n, **path) for n, path in enumerate(paths)])
    found = [[json.loads(text)["total"] for text in texts(one.deliveries)] for one in claimed]
    assert found == [[101], [1, 101], [], [1, 101]]
