"""Stretches of the log: counted, cut and shared out before a body is read (A7)."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from broker.core.claiming.transaction.allocation import Source, allocate, close_runs
from broker.model.delivery import DeliveryRequest
from broker.model.message_range import MessageRange, count_of, multirange, size_of
from broker.model.sequences import to_multirange

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def logs(draw: st.DrawFn) -> list[MessageRange]:
    """Stretches in the order of the log, with gaps where nothing matches."""
    ranges, seq = [], 1
    for length, gap, size in draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40), st.integers(1, 500)), max_size=12)
    ):
        seq += gap
        ranges.append(MessageRange(seq, length, NOW, seq + length - 1, size * length))
        seq += length
    return ranges


def seqs(ranges: list[MessageRange]) -> list[int]:
    return [seq for each in ranges for seq in range(each.first_seq, each.end)]


@given(logs(), st.lists(st.tuples(st.integers(0, 30), st.integers(-10, 4_000), st.integers(0, 1)), max_size=6))
def test_what_is_taken_from_the_front_and_what_is_left_are_the_whole_in_order(
    log: list[MessageRange], takes: list[tuple[int, int, int]]
) -> None:
    source = Source(log)
    taken: list[MessageRange] = []
    for max_messages, max_bytes, at_least in takes:
        part = source.take(max_messages, max_bytes, at_least=at_least)
        assert count_of(part) <= max_messages
        assert size_of(part) <= max(max_bytes, 0) or count_of(part) <= at_least
        taken += part
    rest = source.rest()
    assert seqs(taken) + seqs(rest) == seqs(log)
    assert size_of(taken) + size_of(rest) == size_of(log), "cutting loses no byte"


@given(logs())
def test_sequences_are_written_as_postgres_writes_them(log: list[MessageRange]) -> None:
    assert multirange(log) == to_multirange(seqs(log))


@given(logs())
def test_attempts_do_not_span_more_than_four_times_what_they_hold(log: list[MessageRange]) -> None:
    runs = list(close_runs(log))
    assert [each for run in runs for each in run] == log
    for run in runs:
        assert len(run) == 1 or run[-1].end - 1 - run[0].first_seq <= 4 * count_of(run)


@given(logs(), st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3_000)), min_size=1, max_size=4))
def test_demands_are_filled_in_turn_and_each_gets_one_message_whatever_its_size(
    log: list[MessageRange], requests: list[tuple[int, int]]
) -> None:
    wanted = [DeliveryRequest(max_messages=count, max_bytes=size) for count, size in requests]
    source = Source(log)
    shares = allocate(wanted, [], source)
    left = count_of(log)
    for request, share in zip(wanted, shares, strict=True):
        got = count_of(share.fresh)
        assert got <= request.max_messages
        assert size_of(share.fresh) <= request.max_bytes or got == 1
        assert got or not left
        left -= got
