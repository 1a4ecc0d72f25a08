"""What is past its time is not delivered any more, and is a dead letter; what is not, is delivered."""

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checks.acks import CLOCK_SLACK_SECONDS
from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.history import Bought, Fault, Perishable


def _answered(view: View) -> dict[str, tuple[int, Perishable]]:
    return {name: (number, each) for number, each in all_of(view, Perishable) for name in each.names if each.ids}


def check_nothing_is_past_its_time(view: View) -> Iterator[Violation]:
    """Its time counts from its publish, which was over when that was answered: a later pull comes too late."""
    if any(fault.name == "step the clock" for _, fault in all_of(view, Fault)):
        return  # no time to live is as long as a clock may step
    answered = _answered(view)
    for number, bought in all_of(view, Bought):
        for each in bought.came:
            published, perishable = answered.get(each.name, (0, None))
            if perishable is None or not perishable.ttl:
                continue
            late = bought.began - perishable.ended - perishable.ttl
            if late > CLOCK_SLACK_SECONDS:
                text = f"{each.name} came {late:.3f} s after its time"
                yield violation("past its time", text, [published, number])


def check_perishables_come(view: View) -> Iterator[Violation]:
    """Each that was answered is received, or is a dead letter, once, if it has a time to live; nothing else is
    there.
    """
    answered = _answered(view)
    sent = {name for _, each in all_of(view, Perishable) for name in each.names}
    for_ever = {name for _, each in all_of(view, Perishable) for name in each.names if not each.ttl}
    received = {each.name for _, bought in all_of(view, Bought) for each in bought.came}
    for number, bought in all_of(view, Bought):
        if not bought.final:
            continue
        dead_letters: dict[str, set[int]] = defaultdict(set)
        for each in bought.dead_letters:
            dead_letters[each.name].add(each.id)
        for name, ids in dead_letters.items():
            if len(ids) > 1:
                yield violation("dead-lettered twice", f"{name} has the letters {sorted(ids)}", [number])
            if name in for_ever:
                yield violation("expired for nothing", f"{name} has no time to live and is a letter", [number])
        for name in (received | dead_letters.keys()) - sent:
            yield violation("invented", f"nobody published {name}", [number])
        for name, (published, _) in answered.items():
            if name not in received and name not in dead_letters:
                yield violation("lost", f"{name} was neither received nor is it a letter", [published, number])
