"""Which of the ids that were drawn new shards get, so that they lie evenly on nodes (L1)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.db.citus.spreading import choose_evenly

NODES = 4


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=NODES),
    st.lists(st.integers(0, NODES - 1), max_size=60),
    st.integers(1, 12),
)
def test_no_node_gets_one_while_another_has_fewer(before: list[int], nodes: list[int], count: int) -> None:
    on_nodes = dict(enumerate(before))
    drawn = [(100 + number, node % len(before)) for number, node in enumerate(nodes)]
    if len(drawn) < count:
        return
    chosen, is_even = choose_evenly(on_nodes, drawn, count)
    assert len(set(chosen)) == count
    got = Counter(dict(drawn)[shard_id] for shard_id in chosen)
    after = {node: having + got[node] for node, having in on_nodes.items()}
    fewest = min(after.values())
    assert is_even == all(after[node] <= fewest + 1 for node in got)


def test_without_an_id_for_a_node_it_is_said_and_the_others_are_taken() -> None:
    assert choose_evenly({1: 0, 2: 0}, [(5, 1), (6, 1)], 2) == ([5, 6], False)
    assert choose_evenly({1: 0, 2: 0}, [(5, 1), (6, 1), (7, 2)], 2) == ([5, 7], True)
    assert choose_evenly({1: 3, 2: 1}, [(5, 1), (6, 2), (7, 2), (8, 2)], 2) == ([6, 7], True)
