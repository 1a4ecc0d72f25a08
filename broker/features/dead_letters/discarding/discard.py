"""Options and results of a discard, which drops messages of a subscription and dead letters for good (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.core.backlog.outcome import Outcome
from broker.features.dead_letters.chosen import RedriveOptions
from broker.model.errors import InvalidArgument

MAX_DISCARDED = 1_000  # messages of one call


# The outcome of a message is the first of these that it has in any backlog.
IN_TURN = (Outcome.WAITING, Outcome.DISCARDED, Outcome.LEFT_ALONE, Outcome.ALREADY_SETTLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOptions:
    """Options of a discard: message ids, or a choice of dead letters as for a redrive.

    `start`: the shard and sequence at which the call before ended.
    """

    dead_letters: RedriveOptions
    start: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The outcomes of a discard by message id.

    `left_alone`: subscriptions that still have some of the dead letters.  `rest`: where the next call continues
    (None: that was all).
    """

    outcomes: Mapping[str, Outcome]
    left_alone: Sequence[str]
    rest: tuple[int, int] | None = None


def check_discard(options: DiscardOptions) -> None:
    """Raises InvalidArgument unless either ids or a choice is given: only a purge drops all messages."""
    dead_letters = options.dead_letters
    chosen = bool(dead_letters.filter or dead_letters.reasons or dead_letters.start_time or dead_letters.end_time)
    if bool(dead_letters.message_ids) == chosen:
        raise InvalidArgument(
            "Say what is to be discarded: either messageIds, or which dead letters (filter, reasons, startTime, "
            "endTime)."
        )


def goes_on(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Returns the ids that another step may discard."""
    return [id_ for id_, outcome in outcomes.items() if outcome is Outcome.WAITING]
