"""Whether a message that was given up is a dead letter still, by all dead letters that it has become."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.backlog.delivery_state import DeliveryState
from broker.features.dead_letters.dead_letter_state import DeadLetterState, Resolution, Resolved, can_be_acted_on
from broker.model.dead_letter import kept_since

OUT, HELD, OVER = DeliveryState.OUTSTANDING, DeliveryState.WAITING, DeliveryState.SETTLED
NEVER, LATE = DeliveryState.FILTERED, DeliveryState.EXPIRED
NOW = datetime(2026, 11, 26, tzinfo=UTC)


def _dead_letter(*states: DeliveryState, resolution: str | None = None, kept: bool = True) -> DeadLetterState:
    return DeadLetterState(resolution, kept, states)


@pytest.mark.parametrize(
    ("dead_letter", "expected"),
    [
        (_dead_letter(), True),
        (_dead_letter(kept=False), False),
        (_dead_letter(NEVER), True),
        (_dead_letter(HELD, kept=False), True),
        (_dead_letter(OUT), True),
        (_dead_letter(LATE), True),
        (_dead_letter(LATE, kept=False), False),
        (_dead_letter(OVER), False),
        (_dead_letter(OVER, HELD), True),
        (_dead_letter(OVER, NEVER), False),
        (_dead_letter(resolution=Resolution.DISCARDED), False),
        (_dead_letter(HELD, resolution=Resolution.DISCARDED), True),
        (_dead_letter(resolution=Resolution.ACKNOWLEDGED), False),
        (_dead_letter(HELD, resolution=Resolution.EDITED), False),
    ],
)
def test_of_one_dead_letter(dead_letter: DeadLetterState, expected: bool) -> None:
    """A seek brings back what was discarded, but not what came back as another message."""
    assert can_be_acted_on([dead_letter]) is expected


def test_what_resolved_a_dead_letter_has_resolved_the_earlier_ones_and_no_later_one() -> None:
    kept, over = _dead_letter(), _dead_letter(OVER)
    assert not can_be_acted_on([over, kept])
    assert can_be_acted_on([kept, over])
    assert can_be_acted_on([over, _dead_letter(HELD)])
    assert not can_be_acted_on([_dead_letter(resolution=Resolution.EDITED), kept])


def test_dead_letters_are_kept_for_seven_days_or_as_long_as_their_topic_retains_messages() -> None:
    assert kept_since(None, NOW) == kept_since(timedelta(minutes=10), NOW) == NOW - timedelta(days=7)
    assert kept_since(timedelta(days=31), NOW) == NOW - timedelta(days=31)


def test_what_became_of_it_is_said_as_far_as_it_is_known() -> None:
    assert Resolved(resolution=Resolution.ACKNOWLEDGED).verdict() == "was acknowledged"
    edited = Resolved(resolution=Resolution.EDITED, at=NOW, by="user:ada@example.com", successor=(3, 1))
    assert edited.verdict() == (
        "was edited at 2026-11-26T00:00:00.000Z by user:ada@example.com, and came back as message 3000000000000001"
    )
