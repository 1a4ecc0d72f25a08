"""Digests: what a push subscription takes only many at a time (C4)."""

import pytest

from broker.core.claiming.transaction import fresh
from broker.core.claiming.transaction.request import More, Quiet
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.model.push_config import Digest
from tests.fixtures.log import SECOND, texts
from tests.fixtures.push_log import One, PushLog, contents

PROD = to_jsonpath(parse_filter('attributes.env = "prod"'))


def digest(max_messages: int = 1000, max_bytes: int = 10_000_000, seconds: int = 60) -> Digest:
    return Digest(max_messages=max_messages, max_bytes=max_bytes, max_delay=seconds * SECOND)


async def test_a_digest_waits_until_enough_messages_do(push_log: PushLog) -> None:
    await push_log.publish("a", "b")
    targets = [push_log.target(0, digest=digest(3)), push_log.target(1, digest=digest(2)), push_log.target(2)]
    claimed = await push_log.claim_for(*targets)
    assert contents(claimed) == [[], ["a", "b"], ["a", "b"]]
    assert claimed[0] == One((), Quiet(push_log.start + 60 * SECOND))
    await push_log.publish("c")
    assert await push_log.texts(0, digest=digest(3)) == ["a", "b", "c"]


async def test_a_digest_waits_until_enough_bytes_do(push_log: PushLog) -> None:
    await push_log.publish("x" * 1000)
    [claimed] = await push_log.claim(0, digest=digest(max_bytes=2000))
    assert not claimed.deliveries
    await push_log.publish("y" * 1000)
    assert len(await push_log.texts(0, digest=digest(max_bytes=2000))) == 2


async def test_a_digest_waits_no_longer_than_its_delay(push_log: PushLog) -> None:
    await push_log.publish("a")
    await push_log.publish("b", now=push_log.start + 50 * SECOND)
    assert await push_log.texts(now=push_log.start + 59 * SECOND, digest=digest()) == []
    assert await push_log.texts(now=push_log.start + 60 * SECOND, digest=digest()) == ["a", "b"]


async def test_what_a_digest_leaves_behind_waits_for_company_again(push_log: PushLog) -> None:
    await push_log.publish(*"abcdefg")
    replica_reads = []
    for _ in range(3):
        [claimed] = await push_log.claim(0, max_messages=3, digest=digest(3), includes_due=False)
        replica_reads.append((texts(claimed.deliveries), claimed.rest))
    soon = push_log.start + 60 * SECOND
    assert replica_reads == [([*"abc"], More()), ([*"def"], Quiet(soon)), ([], Quiet(soon))]


async def test_a_digest_counts_only_what_matches_and_the_cursor_passes_the_rest(push_log: PushLog) -> None:
    await push_log.publish("1", "2", env="test")
    await push_log.publish("3", env="prod")
    await push_log.publish("4", env="test")
    assert await push_log.texts(filter_path=PROD, digest=digest(2)) == []
    assert (await push_log.next_seqs())[0] == 3
    await push_log.publish("5", env="prod")
    assert await push_log.texts(filter_path=PROD, digest=digest(2)) == ["3", "5"]


async def test_redeliveries_do_not_wait_for_a_digest(push_log: PushLog) -> None:
    await push_log.publish("a")
    [claimed] = await push_log.claim(0)
    await push_log.nack(0, claimed.deliveries[0])
    await push_log.publish("b")
    assert await push_log.texts(digest=digest(2)) == ["a"]


async def test_a_digest_is_seen_to_be_full_however_many_places_there_are(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "MAX_SCANNED", 6)
    await push_log.publish("a")
    await push_log.claim(0)
    await push_log.publish("b")
    await push_log.claim(1)
    await push_log.publish(*"cdef")
    targets = [push_log.target(number, digest=digest(4)) for number in range(3)]
    claimed = await push_log.claim_for(*targets)
    assert contents(claimed) == [[*"bcde"], [], []]
    assert [one.more for one in claimed[1:]] == [True, True]
    assert contents(await push_log.claim_for(*targets[1:])) == [[*"cdef"], []]
