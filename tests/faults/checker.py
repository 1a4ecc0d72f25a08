"""What must hold of a history, whatever was broken meanwhile: each check is a pure function over it.

    python -m tests.faults --check FILE    checks the history of a run again

A check finds fault with what is certain only: an operation without an answer may have happened or not, and what the
broker did for one happened somewhere between its begin and its end.
"""

from collections.abc import Callable, Iterator

from tests.faults.checks.acks import check_acks_are_final, check_leases, check_push_repeats, check_refusals
from tests.faults.checks.acting import (
    check_discards,
    check_purges,
    check_redrive_counts,
    check_redriven_attempts,
    check_redriven_order,
)
from tests.faults.checks.attempts import check_attempt_numbers, check_dead_letters
from tests.faults.checks.carried import check_carried
from tests.faults.checks.contents import (
    check_ids,
    check_nothing_is_forgotten,
    check_nothing_is_invented,
    check_nothing_is_left,
    check_nothing_is_lost,
    check_publishes_are_whole,
)
from tests.faults.checks.copies import check_copies
from tests.faults.checks.events import check_dead_letters_are_told_of, check_events
from tests.faults.checks.expired import check_nothing_is_past_its_time, check_perishables_come
from tests.faults.checks.filters import check_changed_filters
from tests.faults.checks.journal import (
    check_nothing_else_is_told,
    check_stories,
    check_stories_end,
    check_what_was_answered_is_told,
)
from tests.faults.checks.once import check_cancels, check_named_come, check_nothing_is_early, check_one_id
from tests.faults.checks.order import check_first_deliveries, check_turns
from tests.faults.checks.recalls import check_recalls
from tests.faults.checks.recoveries import check_recoveries
from tests.faults.checks.seeks import check_seeks_restore
from tests.faults.checks.ticks import check_ticks
from tests.faults.checks.transactions import check_acks_in_transactions, check_commit_order, check_transactions
from tests.faults.checks.urgent import check_urgent
from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation
from tests.faults.checks.withdrawn import check_replaced, check_retracted, check_written_come
from tests.faults.history import History

Check = Callable[[View], Iterator[Violation]]

CHECKS: tuple[Check, ...] = (
    check_nothing_is_lost,
    check_nothing_is_forgotten,
    check_nothing_is_invented,
    check_publishes_are_whole,
    check_ids,
    check_first_deliveries,
    check_turns,
    check_acks_are_final,
    check_leases,
    check_refusals,
    check_push_repeats,
    check_attempt_numbers,
    check_dead_letters,
    check_seeks_restore,
    check_redriven_attempts,
    check_redrive_counts,
    check_redriven_order,
    check_discards,
    check_purges,
    check_copies,
    check_one_id,
    check_named_come,
    check_nothing_is_early,
    check_cancels,
    check_recalls,
    check_recoveries,
    check_carried,
    check_urgent,
    check_changed_filters,
    check_retracted,
    check_replaced,
    check_written_come,
    check_nothing_is_past_its_time,
    check_perishables_come,
    check_ticks,
    check_transactions,
    check_commit_order,
    check_acks_in_transactions,
    check_nothing_is_left,
    check_stories,
    check_stories_end,
    check_what_was_answered_is_told,
    check_nothing_else_is_told,
    check_events,
    check_dead_letters_are_told_of,
)


def check(history: History) -> list[Violation]:
    """All violations of the history of a run that has been healed and drained."""
    view = View(history)
    return [violation for rule in CHECKS for violation in rule(view)]
