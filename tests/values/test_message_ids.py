"""Ids of messages, and what no message can have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.errors import InvalidArgument
from broker.model.message_id import SEQUENCES_PER_SHARD, message_id, parse_message_id


@given(st.integers(1, 2**63 - 1), st.integers(1, SEQUENCES_PER_SHARD - 1))
def test_an_id_says_which_message_it_is_however_many_shards_there_were(shard_id: int, seq: int) -> None:
    assert parse_message_id(message_id(shard_id, seq)) == (shard_id, seq)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.0", "٣", "1", str(SEQUENCES_PER_SHARD), str(2**63 * SEQUENCES_PER_SHARD), "9" * 50]
)
def test_an_id_that_no_message_can_have_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="messageId="):
        parse_message_id(text)
