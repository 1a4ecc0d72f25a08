"""Ack ids name a delivery attempt and an ordinal in it; nothing that was not handed out is taken (A7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.ack_id import AttemptName, group_ack_ids, make_ack_ids
from broker.model.errors import InvalidArgument

SUBSCRIPTION = 7

attempts = st.builds(
    AttemptName,
    subscription_id=st.just(SUBSCRIPTION),
    shard_id=st.integers(1, 2**48 - 1),
    attempt_id=st.integers(1, 2**63 - 1),
    count=st.integers(1, 40),
    ordered=st.booleans(),
)


@given(st.lists(attempts, min_size=1, max_size=4, unique_by=lambda a: (a.shard_id, a.attempt_id)), st.data())
def test_any_of_the_ids_in_any_order_and_however_often_name_what_they_were_made_for(
    named: list[AttemptName], data: st.DataObject
) -> None:
    ordinals = {
        attempt: data.draw(st.sets(st.integers(0, attempt.count - 1), min_size=1), label="ordinals")
        for attempt in named
    }
    ids = [ack_id for attempt, some in ordinals.items() for ack_id in make_ack_ids(attempt, some)]
    repeated = ids + data.draw(st.lists(st.sampled_from(ids)), label="again")
    mixed = data.draw(st.permutations(repeated), label="order")
    assert group_ack_ids(mixed, subscription_id=SUBSCRIPTION) == ordinals


@given(attempts)
def test_a_whole_response_is_every_position_of_it(attempt: AttemptName) -> None:
    ids = make_ack_ids(attempt, range(attempt.count))
    assert group_ack_ids(ids, subscription_id=SUBSCRIPTION) == {attempt: set(range(attempt.count))}
    with pytest.raises(InvalidArgument):
        group_ack_ids(ids, subscription_id=SUBSCRIPTION + 1)


@given(attempts, st.data())
def test_one_id_that_was_not_handed_out_refuses_all_and_is_named(attempt: AttemptName, data: st.DataObject) -> None:
    ids = make_ack_ids(attempt, range(attempt.count))
    beyond = make_ack_ids(AttemptName(SUBSCRIPTION, 1, 1, 1000), [999])[0][-4:]
    broken = data.draw(
        st.one_of(
            st.just(""),
            st.text(max_size=50),
            st.sampled_from([ids[0][:-1], ids[0] + "A", ids[0][:36] + beyond, "A" + ids[0][1:-1] + "?"]),
        ).filter(lambda text: text not in ids),
        label="broken",
    )
    at = data.draw(st.integers(0, len(ids)), label="at")
    with pytest.raises(InvalidArgument) as refused:
        group_ack_ids([*ids[:at], broken, *ids[at:]], subscription_id=SUBSCRIPTION)
    assert broken in refused.value.message


@given(attempts.filter(lambda attempt: attempt.count > 1), st.data())
def test_as_many_ids_that_are_cut_elsewhere_are_refused(attempt: AttemptName, data: st.DataObject) -> None:
    ids = make_ack_ids(attempt, range(attempt.count))
    at = data.draw(st.integers(1, attempt.count - 1), label="at")
    between = data.draw(st.sampled_from(["", "\n", ",", " "]), label="between")
    for moved in (1, 4, len(ids[at])):
        cut = [*ids[: at - 1], ids[at - 1] + between + ids[at][:moved], ids[at][moved:], *ids[at + 1 :]]
        with pytest.raises(InvalidArgument):
            group_ack_ids(cut, subscription_id=SUBSCRIPTION)


def test_no_ids_name_nothing() -> None:
    assert group_ack_ids([], subscription_id=SUBSCRIPTION) == {}
