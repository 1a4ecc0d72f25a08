"""What is packed into rows of the record of deliveries is found again, for each message and for no other."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.core.records.delivery_record import (
    MAX_ROW_BYTES,
    AckedMessages,
    By,
    Recorded,
    RecordRow,
    RecordRows,
    find_in_row,
    with_recorded,
)
from broker.model.journal import BUCKET, Author, Entry, Event, ranges_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ME, YOU = By(Author("user:me@b.c")), By(Author(client="push"), "204")


def bounds(*seqs: int) -> list[int]:
    return [bound for each in ranges_of(sorted(seqs)) for bound in each]


def acked(*seqs: int, by: By = ME, attempt: int = 1, at: int = 0, after: int = 0, of: int = 7) -> AckedMessages:
    """`at`: microseconds before NOW; `after`: milliseconds from the hand-out to the ack."""
    return AckedMessages(of, by, bounds(*seqs), attempt, 10**15 - at, 10**15 - at - 1000 * after)


def packed(*some: AckedMessages) -> list[RecordRow]:
    rows = RecordRows(10**15)
    for each in some:
        rows.add(each)
    return rows.rows()


def found(rows: list[RecordRow], seq: int, of: int = 7) -> list[Recorded]:
    return [
        each
        for row in rows
        if (row.subscription_id, row.bucket) == (of, seq // BUCKET)
        for each in find_in_row(row.entries, bucket=row.bucket, seq=seq, recorded_at=NOW, by=row.by)
    ]


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(1, 3 * BUCKET), min_size=1, max_size=60),
            st.sampled_from([ME, YOU]),
            st.integers(1, 70_000),
            st.integers(0, 10**12),
            st.integers(0, 10**9),
        ),
        max_size=8,
    )
)
def test_each_acknowledgement_is_found_with_its_time_attempt_and_author(
    some: list[tuple[set[int], By, int, int, int]],
) -> None:
    rows = packed(
        *(acked(*seqs, by=by, attempt=n, at=at, after=after) for seqs, by, n, at, after in some), acked(1, of=8)
    )
    every = {seq for seqs, *_ in some for seq in seqs}
    for seq in every | {each + 1 for each in every} | {BUCKET, 2 * BUCKET}:
        expected = [
            Recorded(
                NOW - at * MICROSECOND,
                NOW - at * MICROSECOND - after * timedelta(milliseconds=1),
                min(n, 65_535),
                by,
            )
            for seqs, by, n, at, after in some
            if seq in seqs
        ]
        assert sorted(found(rows, seq)) == sorted(expected)


def test_a_response_of_a_thousand_that_follow_each_other_takes_twenty_bytes() -> None:
    [row] = packed(acked(*range(5000, 6000)))
    assert len(row.entries) == 20


def test_rows_are_cut_before_they_are_too_long() -> None:
    rows = packed(*(acked(*range(n * 100, n * 100 + 100, 2)) for n in range(40)), acked(*range(0, 2 * BUCKET, 2)))
    assert max(len(row.entries) for row in rows) <= MAX_ROW_BYTES
    assert all(found(rows, seq) for seq in range(0, 2 * BUCKET, 2))
    assert not any(found(rows, seq) for seq in range(1, 2 * BUCKET, 2))


def test_a_journal_that_has_the_ack_is_not_told_it_twice() -> None:
    attribution = [
        Entry(NOW, Event.HANDED_OUT, 1, Author(), ""),
        Entry(NOW + MICROSECOND, Event.ACKED, 1, Author("user:me@b.c"), ""),
    ]
    assert with_recorded(attribution, [Recorded(NOW + 2 * MICROSECOND, NOW, 1, ME)]) == attribution
    again = Recorded(NOW + timedelta(hours=1), NOW + timedelta(minutes=59), 1, YOU)
    assert [(each.event, each.author, each.answer) for each in with_recorded(attribution, [again])] == [
        ("HANDED_OUT", Author(), ""),
        ("ACKED", ME.author, ""),
        ("ACKED", YOU.author, "204"),
    ]
