"""What happens often is a line a minute for each subject."""

import pytest

from broker.observability.tally import SUBJECTS, Tally


def test_three_thousand_are_one_line_with_their_reasons(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = 100.0
    tally = Tally("dead letters", ticks=lambda: now)
    for _ in range(10):
        tally.add("of s to t", {"nack": 299, "deadline": 1})
        now += 5
        tally.tick()
    assert caplog.messages == []
    now += 10
    tally.tick()
    tally.tick()
    assert caplog.messages == ["3,000 dead letters of s to t in 60 s: nack 2,990, deadline 10"]
    now += 1_000
    tally.tick()
    tally.add("of s to t", {"nack": 1})
    now += 1
    tally.tick(at_once=True)
    assert caplog.messages[1:] == ["1 dead letters of s to t in 1 s: nack 1"]


def test_ten_thousand_subjects_are_a_few_lines_and_a_sum(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = 0.0
    tally = Tally("dead letters", ticks=lambda: now)
    for number in range(10_000):
        tally.add(f"of s{number} to t", {"nack": 1})
    now = 60.0
    tally.tick()
    assert len(caplog.messages) == SUBJECTS + 1
    assert caplog.messages[-1] == "9,980 dead letters of 9,980 others in 60 s: nack 9,980"
