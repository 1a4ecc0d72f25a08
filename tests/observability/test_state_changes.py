"""What the log says of a trouble: its beginning, its end, once an hour meanwhile, and never very much."""

from collections.abc import Iterator

import pytest

from broker.observability.state_changes import LINES_A_MINUTE, QUIET_SECONDS, REMIND_SECONDS, StateChanges


class Watched:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.now = 1_000.0
        self.states = StateChanges(ticks=lambda: self.now)

    def said(self) -> list[str]:
        lines = [f"{record.levelname} {record.getMessage()}" for record in self._caplog.records]
        self._caplog.clear()
        return lines

    def pass_(self, seconds: float) -> None:
        """Time passes, with ticks."""
        for _ in range(max(1, round(seconds / 10))):
            self.now += seconds / max(1, round(seconds / 10))
            self.states.tick()


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    with caplog.at_level("INFO"):
        yield Watched(caplog)


def _away(watched: Watched, why: str = "connection refused") -> None:
    watched.states.begins("databases", "", "the database is away", why)


def test_a_trouble_is_told_when_it_begins_and_when_it_ends_however_often_it_is_noticed(watched: Watched) -> None:
    for _ in range(59):
        _away(watched)
        watched.pass_(0.1)
    assert watched.said() == ["WARNING the database is away: connection refused"]
    watched.states.ends("databases", "", "the database is back")
    watched.states.ends("databases", "", "the database is back")
    [line] = watched.said()
    assert line.startswith("INFO the database is back, after 5.9 s (since 2")
    assert line.endswith("Z)")


def test_while_it_lasts_it_is_told_once_an_hour_with_the_newest_reason(watched: Watched) -> None:
    _away(watched)
    watched.said()
    watched.pass_(REMIND_SECONDS - 60)
    assert watched.said() == []
    _away(watched, "no route to host")
    watched.pass_(60)
    [line] = watched.said()
    assert line.startswith("WARNING the database is away, for 60 min, since 2")
    assert line.endswith("Z: no route to host")
    watched.pass_(2 * REMIND_SECONDS)
    assert [line.partition(", since")[0] for line in watched.said()] == [
        "WARNING the database is away, for 2 h",
        "WARNING the database is away, for 3 h",
    ]


def test_what_is_gone_is_forgotten_without_a_word(watched: Watched) -> None:
    _away(watched)
    watched.said()
    watched.states.forget("databases", "")
    watched.states.ends("databases", "", "the database is back")
    watched.pass_(REMIND_SECONDS)
    assert watched.said() == []


def test_what_only_happens_is_counted_and_over_when_it_has_not_happened_for_a_while(watched: Watched) -> None:
    for _ in range(1_000):
        watched.states.happens("refusals", "503", "calls are refused with 503", "too many pulls wait")
        watched.pass_(0.1)
    assert watched.said() == ["WARNING calls are refused with 503: too many pulls wait"]
    watched.pass_(QUIET_SECONDS)
    assert watched.said() == ["INFO no more for 30 s: calls are refused with 503 (1,000 times in 100 s)"]
    assert not watched.states.lasts("refusals", "503")


def test_two_thousand_troubles_at_once_are_a_few_lines_and_a_sum(watched: Watched) -> None:
    for number in range(2_000):
        watched.states.begins("push endpoints", f"s{number}", f"pushes of s{number} fail", "status 503")
    assert len(watched.said()) == LINES_A_MINUTE
    watched.pass_(70)
    assert watched.said() == [
        "WARNING push endpoints: 1,980 lines more in the last minute, the last of them: pushes of s1999 fail: "
        "status 503; 2,000 have such trouble now"
    ]
    _away(watched)  # another kind has lines of its own
    assert watched.said() == ["WARNING the database is away: connection refused"]
    watched.pass_(REMIND_SECONDS)
    reminders = [line for line in watched.said() if "database" not in line]
    assert len(reminders) == LINES_A_MINUTE + 1
    assert reminders[-1] == "WARNING push endpoints: 1,980 more are so, for an hour at least"
    for number in range(2_000):
        watched.states.ends("push endpoints", f"s{number}", f"pushes of s{number} work again")
    assert len(watched.said()) == LINES_A_MINUTE


def _fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    found = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    caplog.clear()
    return found


def test_all_lines_of_a_trouble_have_the_fields_of_what_it_is_of(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    name = "projects/p/subscriptions/s"
    of_it = {"project": "p", "subscription": name, "status": "503"}
    watched.states.begins("push endpoints", name, "pushes fail", "status 503", lasted=2, fields={"status": "503"})
    watched.pass_(REMIND_SECONDS)
    watched.states.ends("push endpoints", name, "pushes work again")
    began, lasts, ended = _fields(caplog)
    assert began == {**of_it, "event": "push_endpoints.began", "duration": "2s", "reason": "status 503"}
    assert lasts == {**of_it, "event": "push_endpoints.lasts", "duration": "3602s", "reason": "status 503"}
    assert ended == {**of_it, "event": "push_endpoints.ended", "duration": "3602s"}


def test_what_happens_has_them_too_and_what_is_told_those_that_it_is_given(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        watched.states.happens("transforms", "projects/p/topics/t", "they fail", "no")
    watched.pass_(2 * QUIET_SECONDS)
    began, ended = _fields(caplog)
    assert (began["topic"], began["event"]) == ("projects/p/topics/t", "transforms.began")
    assert (ended["topic"], ended["event"], ended["count"]) == ("projects/p/topics/t", "transforms.ended", 3)
    watched.states.report("purged topics", "t is purged", fields={"topic": "projects/p/topics/t"})
    assert _fields(caplog) == [{"event": "purged_topics", "topic": "projects/p/topics/t"}]


def test_a_summary_of_lines_that_were_not_written_says_how_many(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES_A_MINUTE + 5):
        watched.states.report("purged topics", f"{number}")
    watched.pass_(60)
    assert _fields(caplog)[-1] == {"event": "purged_topics.summed_up", "count": 5}
