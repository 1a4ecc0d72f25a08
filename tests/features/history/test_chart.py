"""The chart of `broker history`."""

from datetime import UTC, datetime, timedelta

from broker.features.history.chart import Chart, short_number

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def chart(amounts: dict[int, int], *, minutes: int = 20, unit: str = "1", is_gauge: bool = False) -> Chart:
    """Amounts by the minutes in which they were counted."""
    return Chart(
        amounts={START + number * MINUTE: amount for number, amount in amounts.items()},
        start=START,
        end=START + minutes * MINUTE,
        period=MINUTE,
        unit=unit,
        is_gauge=is_gauge,
    )


def test_a_counter_is_drawn_as_a_rate_with_its_scale_and_a_summary() -> None:
    assert list(chart({0: 60, 1: 300, 2: 600, 19: 3}).lines(40)) == [
        "     10/s │  █",
        "          │  █",
        "          │  █",
        "          │  █",
        "      5/s │ ██",
        "          │ ██",
        "          │ ██",
        "          │▆██                ▁",
        "        0 └────────────────────",
        "           12:00:00 12:20:00 UTC",
        "A column is 1m; highest 10/s at 12:02:00, last 0.05/s, 963 in all.",
    ]


def test_a_narrow_terminal_has_columns_of_several_periods_and_ascii_where_it_needs_that() -> None:
    assert list(chart({0: 60, 1: 300, 30: 600}, minutes=60).lines(30, is_ascii=True)) == [
        "      3/s |",
        "          |       |",
        "          |       #",
        "          |       #",
        "    1.5/s |#      #",
        "          |#      #",
        "          |#      #",
        "          |#      #",
        "        0 +---------------",
        "           12:00:00 13:00:00 UTC",
        "A column is 4m; highest 2.5/s at 12:28:00, last 0/s, 960 in all.",
    ]


def test_gauges_have_the_highest_value_of_each_column_and_their_unit() -> None:
    lines = chart({0: 30, 1: 90, 2: 60}, minutes=60, unit="s", is_gauge=True).lines(30)
    assert lines[-1] == "A column is 4m; highest 1m30s at 12:00:00, last 0s."
    lines = chart({3: 1_500_000}, unit="By", is_gauge=True).lines(80)
    assert lines[-1] == "A column is 1m; highest 1.5 MB at 12:03:00, last 0 B."
    lines = chart({3: 6_000_000}, unit="By").lines(80)
    assert lines[-1] == "A column is 1m; highest 100.0 kB/s at 12:03:00, last 0 B/s, 6.0 MB in all."


def test_the_last_period_counts_by_the_time_that_it_has() -> None:
    cut = Chart(
        amounts={START: 600, START + MINUTE: 100},
        start=START,
        end=START + MINUTE + timedelta(seconds=10),
        period=MINUTE,
        unit="1",
        is_gauge=False,
    )
    assert cut.lines(80)[-1] == "A column is 1m; highest 10/s at 12:00:00, last 10/s, 700 in all."


def test_numbers_have_three_digits_and_a_letter() -> None:
    values = [0, 0.0512, 9.96, 100, 999, 1000, 1234, 45_678, 999_600, 1e9, 1e13]
    assert [short_number(each) for each in values] == [
        *("0", "0.0512", "9.96", "100", "999", "1k", "1.23k", "45.7k", "1M", "1G", "10000G"),
    ]
