"""Discard: messages of a subscription, and its dead letters, are dropped for good by whoever operates it (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.core.backlog.outcome import Outcome
from broker.features.dead_letters.chosen import RedriveOptions
from broker.model.errors import InvalidArgument

MAX_DISCARDED = 1_000  # messages of one call


# The first that holds of any place where a message lies is said of it.
IN_TURN = (Outcome.WAITING, Outcome.DISCARDED, Outcome.LEFT_ALONE, Outcome.ALREADY_SETTLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOptions:
    """As it was asked for: ids, or a choice of the subscription's dead letters, as a redrive's; `start`: where a
    call before has left off, the shard and the sequence.
    """

    dead_letters: RedriveOptions
    start: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """By message id.  `left_alone`: subscriptions that have letters still.  `rest`: where the next call goes on."""

    outcomes: Mapping[str, Outcome]
    left_alone: Sequence[str]
    rest: tuple[int, int] | None = None


def check_discard(options: DiscardOptions) -> None:
    """Raises InvalidArgument: all is meant by nothing but a purge."""
    dead_letters = options.dead_letters
    chosen = bool(dead_letters.filter or dead_letters.reasons or dead_letters.start_time or dead_letters.end_time)
    if bool(dead_letters.message_ids) == chosen:
        raise InvalidArgument(
            "Say what is to be discarded: either messageIds, or which dead letters (filter, reasons, startTime, "
            "endTime)."
        )


def goes_on(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Those that another try may get at."""
    return [id_ for id_, outcome in outcomes.items() if outcome is Outcome.WAITING]
