"""What a shard's log keeps, by spans of ten minutes."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.features.quotas.retained import SPAN_SECONDS, Tally, span_of

_START = datetime(2026, 1, 1, tzinfo=UTC)
_FIRST = span_of(_START)
_SPANS = st.integers(0, 20)


def _time(span: int) -> datetime:
    return _START + span * timedelta(seconds=SPAN_SECONDS)


@given(
    sizes=st.lists(st.tuples(_SPANS, st.integers(0, 1_000))),
    forgotten=_SPANS,
    since=st.none() | _SPANS,
    spans=st.frozensets(_SPANS),
)
def test_what_is_kept_is_the_sum_of_what_is_wanted_each_span_once(
    sizes: list[tuple[int, int]], forgotten: int, since: int | None, spans: frozenset[int]
) -> None:
    tally = Tally(_FIRST)
    for seq, (span, size) in enumerate(sorted(sizes), 1):
        tally.add(_FIRST + span, size, publish_time=_time(span), seq=seq)
    tally.forget_before(_FIRST + forgotten)
    wanted = {n for n in range(forgotten, 21) if n in spans or (since is not None and n >= since)}
    kept = tally.kept(None if since is None else _FIRST + since, [_FIRST + n for n in spans])
    assert kept == sum(size for span, size in sizes if span in wanted)


def test_a_log_is_read_on_after_what_was_read() -> None:
    tally = Tally(_FIRST)
    assert (tally.publish_time, tally.seq) == (_START, 0)
    tally.add(_FIRST + 1, 5, publish_time=_time(1), seq=7)
    tally.caught_up(9)
    tally.caught_up(8)  # a head that was read before
    assert (tally.publish_time, tally.seq) == (_time(1), 9)
