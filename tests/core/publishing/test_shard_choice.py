"""Which shard a publish without a key goes to: one after the other, but publishes go on sharing commits (L1)."""

from collections import Counter

from broker.core.publishing.shard_choice import ShardChoice

SHARDS = (11, 12, 13, 14)


def test_whoever_publishes_alone_uses_all_shards_in_turn() -> None:
    choice = ShardChoice(lambda _: False)
    used = [choice.choose(1, SHARDS, 1) for _ in range(8)]
    assert set(used[:4]) == set(SHARDS)
    assert used[4:] == used[:4]


def test_what_comes_while_a_shard_is_busy_goes_there_for_a_while() -> None:
    choice = ShardChoice(lambda _: True)
    used = [choice.choose(1, SHARDS, 100) for _ in range(80)]
    assert [len({*used[n : n + 10]}) for n in range(0, 80, 10)] == [1] * 8
    assert set(Counter(used).values()) == {20}


def test_each_topic_has_a_turn_of_its_own() -> None:
    choice = ShardChoice(lambda shard_id: shard_id in SHARDS)
    first = choice.choose(1, SHARDS, 1)
    assert len({choice.choose(2, (21, 22), 1) for _ in range(4)}) == 2
    assert choice.choose(1, SHARDS, 1) == first
    assert choice.choose(3, (31,), 1) == 31


def test_processes_begin_with_different_shards() -> None:
    assert len({ShardChoice(lambda _: False).choose(1, SHARDS, 1) for _ in range(100)}) == 4
