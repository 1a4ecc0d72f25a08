"""The pace of an operation whose rate is limited, however long its steps take; and what is said of it."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.client.operations import in_words
from broker.features.operations.operation import MAX_STEP, Operation, next_step_at, step_size
from broker.model.operation_verb import Verb

START = datetime(2026, 11, 26, 12, tzinfo=UTC)


def _run(rate: float, *, step_seconds: float, seconds: float = 30) -> tuple[Operation, list[int]]:
    """An operation that has run for so long, each step of which takes so long; and the sizes of its steps."""
    operation = Operation(
        name="projects/p/operations/1",
        project="projects/p",
        verb=Verb.REDRIVE,
        target="projects/p/subscriptions/s",
        request={"maxMessagesPerSecond": rate},
        created_at=START,
        updated_at=START,
        next_step_at=START,
    )
    sizes: list[int] = []
    while operation.updated_at < START + timedelta(seconds=seconds):
        sizes.append(step_size(operation))
        now = max(operation.updated_at, operation.next_step_at) + timedelta(seconds=step_seconds)
        later = next_step_at(operation, sizes[-1], now)
        operation = Operation(
            **{name: getattr(operation, name) for name in ("name", "project", "verb", "target", "request")},
            created_at=START,
            updated_at=now,
            next_step_at=later,
            done=operation.done + sizes[-1],
        )
    return operation, sizes


@pytest.mark.parametrize("step_seconds", [0.01, 0.1, 0.25, 0.6])
def test_the_rate_is_reached_although_steps_take_long_and_never_exceeded(step_seconds: float) -> None:
    operation, sizes = _run(300, step_seconds=step_seconds)
    assert 270 <= operation.rate <= 301
    assert max(sizes) <= 300


def test_a_step_has_no_more_than_may_be_locked_at_once() -> None:
    operation, sizes = _run(10_000, step_seconds=0.5)
    assert max(sizes) == MAX_STEP
    assert operation.rate == pytest.approx(MAX_STEP / 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("rate", "done", "said"),
    [
        (128, "3000", "; it went at 128 messages a second, and 300 were allowed."),
        (290, "3000", ": 3000 redriven."),
        (20, "10", ": 3000 redriven."),
    ],
)
def test_a_rate_that_was_not_reached_is_said(rate: float, done: str, said: str) -> None:
    metadata = {
        "verb": "redrive",
        "target": "projects/p/subscriptions/s",
        "counts": {"redriven": "3000"},
        "maxMessagesPerSecond": 300,
        "ratePerSecond": rate,
        "done": done,
    }
    assert in_words({"metadata": metadata, "done": True}).endswith(said)
