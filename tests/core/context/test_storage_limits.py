"""Storage limits as arithmetic: when publishing pauses and resumes, the default limit, and sizes as text."""

import pytest

from broker.core.context.storage import (
    GIB,
    DiskSpace,
    TableSize,
    are_tables_full,
    default_min_free,
    format_size,
    is_disk_low,
    parse_size,
)


def test_publishing_pauses_below_the_limit_and_resumes_at_1_2_times_it() -> None:
    was_low, seen = False, []
    for free in (130, 100, 99, 100, 119, 120, 119, 100, 99):
        was_low = is_disk_low(free, 100, was_low=was_low)
        seen.append(was_low)
    assert seen == [False, False, True, True, True, False, False, False, True]
    assert not is_disk_low(0, 0, was_low=True), "a limit of 0 is none"


def test_publishing_pauses_above_the_size_of_tables_and_resumes_once_they_are_smaller_by_1_2() -> None:
    were_full, seen = False, []
    for size in (100, 120, 121, 120, 101, 100, 120):
        were_full = are_tables_full(size, 120, were_full=were_full)
        seen.append(were_full)
    assert seen == [False, False, True, True, True, False, False]
    assert not are_tables_full(10**15, 0, were_full=True), "a limit of 0 is none"


@pytest.mark.parametrize(
    ("total", "limit"),
    [
        (250 * 10**9, 12_500_000_000),  # 5 % of a laptop's disk
        (20 * GIB, GIB),
        (8 * GIB, GIB),
        (4 * GIB, 4 * GIB // 5),  # of a small disk or a file system in memory no more than a fifth
        (600 << 20, (600 << 20) // 5),
    ],
)
def test_the_default_limit_is_1_gib_or_5_percent_but_at_most_a_fifth(total: int, limit: int) -> None:
    assert default_min_free(total) == limit


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500MB", 500_000_000), ("2GiB", 2 * GIB), ("1.5 gib", 3 * GIB // 2), ("10k", 10_000), ("7", 7)],
)
def test_a_size_has_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", "1e3", "nan", "inf", "1GB 2", "99999999999TB", "٣MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_size(text)


def test_sizes_are_shown_with_units() -> None:
    assert [format_size(size) for size in (0, 1, 500_000, 412_300_000, GIB, 3 * 10**12)] == [
        "0 MB",
        "1 byte",
        "500,000 bytes",
        "412 MB",
        "1.1 GB",
        "3.0 TB",
    ]


def test_a_refusal_names_the_size_the_limit_the_setting_and_the_remedy_but_not_where_the_data_is() -> None:
    disk = DiskSpace(directory="/secret/place", free=412_000_000, min_free=GIB, is_low=True)
    refusal = disk.refusal()
    for said in ("412 MB are free", "1.1 GB", "--disk-free-min", "resumes at 1.3 GB", "free disk space"):
        assert said in refusal.message
    assert "/secret/place" not in refusal.message
    assert "/secret/place" in disk.finding
    assert (refusal.code, refusal.retry_seconds) == ("RESOURCE_EXHAUSTED", 5.0)
    tables = TableSize(size=12 * 10**9, max_size=10**10, is_low=True).refusal()
    for said in ("12.0 GB", "10.0 GB", "--database-size-max", "resumes at 8.3 GB", "purge or delete"):
        assert said in tables.message
    assert not any(digit in tables.log_message for digit in "0123456789"), (
        "the log counts calls that are refused alike"
    )
