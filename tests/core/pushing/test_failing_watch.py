"""Which failures of a push subscription are reported, and when."""

from datetime import UTC, datetime, timedelta

from broker.core.pushing.health.failing_watch import GONE_AFTER, MAX_TRACKED, Failed, FailingWatch
from broker.model.push_state import MAX_FAILING_MESSAGES, FailureRun, PushState

START = datetime(2026, 11, 26, 12, tzinfo=UTC)
AFTER = timedelta(seconds=60)


class Watched:
    """A watch, and the time as the test sets it in seconds."""

    def __init__(self, known: PushState | None = None) -> None:
        self.watch = FailingWatch(AFTER, known)

    def fail(
        self,
        second: float,
        *ids: str,
        status: int | None = 503,
        last_attempt: bool = False,
        took: float = 0,
        retry: float = 0,
    ) -> list[str]:
        now = START + timedelta(seconds=second)
        retry_at = None if last_attempt else now + timedelta(seconds=retry)
        messages = [Failed(message_id, retry_at) for message_id in ids]
        began = now - timedelta(seconds=took)
        return self.watch.failed(messages, began=began, now=now, status=status, reason=f"reason {status}")

    def succeed(self, second: float, *ids: str) -> list[str]:
        return self.watch.succeeded(ids, START + timedelta(seconds=second))

    def is_due(self, second: float) -> bool:
        return self.watch.is_due(START + timedelta(seconds=second))

    def forget_gone(self, second: float, *held: str) -> list[str]:
        return self.watch.forget_gone(START + timedelta(seconds=second), held)

    def ends_idle(self, second: float, *, is_idle: bool) -> bool:
        return self.watch.ends_idle(START + timedelta(seconds=second), is_idle=is_idle)

    @property
    def failing_ids(self) -> list[str]:
        return [message.message_id for message in self.watch.failing_messages]


def test_an_endpoint_is_due_by_time_also_when_nothing_is_sent_to_it_any_more() -> None:
    watched = Watched()
    watched.fail(0, "a")
    assert not watched.is_due(59)
    assert watched.is_due(60)
    watched.watch.report()
    assert not watched.is_due(61)


def test_a_run_has_the_first_time_the_count_and_the_last_failure() -> None:
    watched = Watched()
    watched.fail(5, "a", status=500)
    watched.fail(6, "b", status=None)
    assert watched.watch.run == FailureRun(
        since=START + timedelta(seconds=5), requests=2, status=None, reason="reason None"
    )


def test_a_request_that_hangs_fails_since_it_began_but_not_since_before_the_last_success() -> None:
    watched = Watched()
    watched.fail(600, "a", status=None, took=600)
    assert watched.watch.run is not None
    assert watched.watch.run.since == START
    watched.succeed(610, "b")
    watched.fail(700, "a", status=None, took=600)
    watched.fail(701, "c", status=None, took=600)
    assert watched.watch.run is not None
    assert watched.watch.run.since == START + timedelta(seconds=610)


def test_the_next_attempt_is_that_of_the_message_that_is_due_first() -> None:
    watched = Watched()
    assert watched.watch.retry_at is None
    watched.fail(0, "a", retry=100)
    watched.fail(1, "b", retry=10)
    watched.fail(2, "c", last_attempt=True)
    assert watched.watch.retry_at == START + timedelta(seconds=11)
    watched.fail(11, "b", retry=200)
    assert watched.watch.retry_at == START + timedelta(seconds=100)
    watched.succeed(100, "a")
    assert watched.watch.retry_at is None


def test_a_success_ends_the_run_and_the_next_one_begins_anew() -> None:
    watched = Watched()
    watched.fail(0, "a")
    watched.succeed(30, "b")
    assert watched.watch.run is None
    watched.fail(50, "c")
    assert not watched.is_due(60)
    assert watched.is_due(110)


def test_a_run_is_taken_over_from_another_process_with_its_time_and_count() -> None:
    first = Watched()
    first.fail(0, "a")
    state = PushState(subscription_id=1, changed_at=START, failures=first.watch.run)
    second = Watched(state)
    second.fail(60, "a")
    assert second.is_due(60)
    second.watch.report()
    third = Watched(PushState(subscription_id=1, changed_at=START, failures=second.watch.run))
    assert third.watch.run == FailureRun(since=START, requests=2, status=503, reason="reason 503", is_reported=True)
    assert not third.is_due(1_000)


def test_an_endpoint_whose_only_message_was_given_up_is_not_due_until_it_fails_again() -> None:
    watched = Watched()
    for attempt in range(5):
        watched.fail(attempt, "a", last_attempt=attempt == 4)
    assert not watched.is_due(3_600)
    watched.fail(3_600, "b")
    assert watched.is_due(3_600)


def test_a_message_that_fails_while_others_succeed_is_reported_once_and_not_the_endpoint() -> None:
    watched = Watched()
    for second in range(0, 120, 10):
        watched.fail(second, "poison", status=500)
        watched.succeed(second + 5, f"healthy {second}")
        assert watched.failing_ids == (["poison"] if second >= 60 else [])
        assert not watched.is_due(second + 5)
    [message] = watched.watch.failing_messages
    assert (message.since, message.failures, message.status) == (START, 12, 500)
    assert watched.succeed(130, "poison") == ["poison"]
    assert watched.failing_ids == []


def test_one_such_message_does_not_make_an_idle_endpoint_fail_but_a_second_message_does() -> None:
    watched = Watched()
    watched.fail(0, "poison", status=500)
    watched.succeed(1, "healthy")
    for second in range(2, 300, 10):
        watched.fail(second, "poison", status=500)
    assert (watched.watch.run, watched.failing_ids) == (None, ["poison"])
    watched.fail(300, "fresh", status=500)
    assert watched.watch.run is not None
    assert watched.watch.run.since == START + timedelta(seconds=300)


def test_several_messages_that_are_rejected_do_not_make_an_idle_endpoint_fail_but_server_errors_do() -> None:
    rejections, failures = (200, 400, 404, 422), (301, 401, 403, 408, 425, 429, 503, None)
    for status, fails in [(each, False) for each in rejections] + [(each, True) for each in failures]:
        watched = Watched()
        for message_id in ("first", "second"):
            watched.fail(0, message_id, status=status)
        watched.succeed(1, "healthy")
        for second in range(2, 100, 10):
            for message_id in ("first", "second"):
                watched.fail(second, message_id, status=status)
        assert watched.is_due(100) == fails, status
        assert sorted(watched.failing_ids) == ([] if fails else ["first", "second"]), status


def test_a_reported_message_that_is_given_up_is_over() -> None:
    watched = Watched()
    watched.fail(0, "poison", status=400)
    watched.succeed(1, "healthy")
    watched.fail(60, "poison", status=400)
    assert watched.failing_ids == ["poison"]
    assert watched.fail(70, "poison", status=400, last_attempt=True) == ["poison"]
    assert watched.failing_ids == []


def test_a_message_that_another_process_reported_stays_reported() -> None:
    first = Watched()
    first.fail(0, "poison", status=400)
    first.succeed(1, "healthy")
    first.fail(60, "poison", status=400)
    state = PushState(subscription_id=1, changed_at=START, failing_messages=first.watch.failing_messages)
    second = Watched(state)
    second.fail(70, "poison", status=400)
    assert (second.failing_ids, second.watch.run) == (["poison"], None)
    assert second.watch.failing_messages[0].failures == 3


def test_memory_and_what_is_reported_are_bounded_and_what_is_over_makes_capacity() -> None:
    watched = Watched()
    ids = [f"{number:04}" for number in range(3 * MAX_TRACKED)]
    for message_id in ids:
        watched.fail(0, message_id, status=400)
    watched.succeed(1, "healthy")
    for second in (60, 61):
        for message_id in ids:
            watched.fail(second, message_id, status=400)
            watched.succeed(second, "healthy")
    for message_id in ids[-MAX_TRACKED:]:
        watched.fail(200, message_id, status=400)
    assert len(watched.watch._tracked) == MAX_TRACKED
    assert watched.failing_ids == ids[-MAX_TRACKED : MAX_FAILING_MESSAGES - MAX_TRACKED]
    watched.succeed(201, watched.failing_ids[0])
    watched.fail(202, ids[-1], status=400)
    assert len(watched.failing_ids) == MAX_FAILING_MESSAGES
    assert ids[-1] in watched.failing_ids


def _with_a_reported_message(*, retry: float) -> Watched:
    watched = Watched()
    watched.fail(0, "poison", status=400)
    watched.succeed(1, "a")
    watched.fail(61, "poison", status=400, retry=retry)
    assert watched.failing_ids == ["poison"]
    return watched


def test_a_reported_message_that_is_not_tried_any_more_is_gone() -> None:
    late = 61 + 30 + GONE_AFTER.total_seconds()
    watched = _with_a_reported_message(retry=30)
    assert watched.forget_gone(late - 1) == []
    assert watched.forget_gone(late, "poison") == []  # it is about to be sent
    assert watched.failing_ids == ["poison"]
    assert watched.forget_gone(late) == ["poison"]
    assert watched.failing_ids == []
    assert watched.forget_gone(late + 1) == []


def test_a_message_is_not_gone_while_the_endpoint_fails() -> None:
    watched = _with_a_reported_message(retry=1)
    watched.fail(62, "b", status=503)
    assert watched.forget_gone(10_000) == []
    assert watched.failing_ids == ["poison"]


def test_what_another_process_has_reported_is_gone_once_no_backoff_can_explain_the_delay() -> None:
    before = _with_a_reported_message(retry=1).watch.failing_messages
    watched = Watched(PushState(subscription_id=1, changed_at=START, failing_messages=before))
    assert watched.forget_gone(100) == []
    assert watched.forget_gone(100 + 600 + GONE_AFTER.total_seconds() - 1) == []
    assert watched.forget_gone(100 + 600 + GONE_AFTER.total_seconds()) == ["poison"]


def test_one_message_on_which_the_endpoint_hangs_does_not_make_the_endpoint_fail() -> None:
    """It accepted others meanwhile; later on there is only this one."""
    watched = Watched()
    watched.succeed(1, "a")
    watched.fail(10, "hangs", status=None, took=10)
    for second in range(20, 120, 10):
        watched.fail(second, "hangs", status=None, took=10)
    assert watched.watch.run is None
    assert watched.failing_ids == ["hangs"]


def test_an_endpoint_that_nothing_is_left_for_fails_no_longer() -> None:
    watched = Watched()
    watched.fail(0, "a", retry=30)
    watched.watch.report()
    late = 30 + GONE_AFTER.total_seconds()
    for second, is_idle in ((1, True), (29, True), (31, False), (40, True), (late + 9, True)):
        assert not watched.ends_idle(second, is_idle=is_idle)
    assert watched.watch.run is not None
    assert watched.ends_idle(late + 10, is_idle=True)
    assert watched.watch.run is None
    assert not watched.ends_idle(late + 11, is_idle=True)


def test_the_failures_that_another_process_left_behind_last_for_as_long_as_a_backoff_may() -> None:
    known = Watched()
    known.fail(0, "a")
    watched = Watched()
    watched.watch.run = known.watch.run
    late = 600 + GONE_AFTER.total_seconds()
    assert [watched.ends_idle(second, is_idle=True) for second in (0, late - 1, late)] == [False, False, True]
