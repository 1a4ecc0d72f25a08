"""What is published again under its deduplication id is stored once; what is to come later comes in its time, once,
and never after a cancel that was answered.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Cancel, Collected, Named


def _named(view: View) -> list[tuple[int, Named]]:
    return [(n, each) for n, each in enumerate(view.history.operations) if isinstance(each, Named)]


def _collected(view: View) -> list[tuple[int, Collected]]:
    return [(n, each) for n, each in enumerate(view.history.operations) if isinstance(each, Collected)]


def _answered(view: View) -> dict[str, dict[int, int]]:
    """By name: the ids that were answered, and by which operation."""
    ids: dict[str, dict[int, int]] = defaultdict(dict)
    for number, each in _named(view):
        if each.outcome == "ok":
            for name, id_ in zip(each.names, each.ids, strict=True):
                ids[name].setdefault(id_, number)
    return ids


def check_one_id(view: View) -> Iterator[Violation]:
    """A deduplication id has one message id, which no other has."""
    names: dict[int, str] = {}
    for name, ids in _answered(view).items():
        if len(ids) > 1:
            yield violation("two ids", f"{name} has the ids {sorted(ids)}", ids.values())
        for id_, number in ids.items():
            if names.setdefault(id_, name) != name:
                yield violation("one id for two", f"{name} and {names[id_]} have the id {id_}", [number])


def check_named_come(view: View) -> Iterator[Violation]:
    """Each that was answered comes, under its id, once, but for what may have been cancelled."""
    answered, sent = _answered(view), {name for _, each in _named(view) for name in each.names}
    cancelled = {
        each.id for each in view.history.operations if isinstance(each, Cancel) and each.outcome != "failed"
    }
    for number, collected in _collected(view):
        came: dict[str, set[int]] = defaultdict(set)
        for each in collected.came:
            came[each.name].add(each.id)
        for name, ids in came.items():
            if name not in sent:
                yield violation("invented", f"nobody published {name}", [number])
            elif len(ids) > 1:
                yield violation("stored twice", f"{name} came under the ids {sorted(ids)}", [number])
            elif name in answered and not ids & answered[name].keys():
                yield violation("changed", f"{name} came as {ids}, not {sorted(answered[name])}", [number])
        for name, of_name in answered.items():
            if name not in came and not cancelled & of_name.keys():
                yield violation("lost", f"{name} was answered and never came", of_name.values())


def check_nothing_is_early(view: View) -> Iterator[Violation]:
    for number, collected in _collected(view):
        for each in collected.came:
            if each.early > 0:
                yield violation("early", f"{each.name} came {each.early:.3f} s before its time", [number])


def check_cancels(view: View) -> Iterator[Violation]:
    """What was cancelled, and that was answered, does not come."""
    cancels = {
        each.id: number
        for number, each in enumerate(view.history.operations)
        if isinstance(each, Cancel) and each.outcome == "ok"
    }
    for number, collected in _collected(view):
        for each in collected.came:
            if each.id in cancels:
                yield violation("after a cancel", f"{each.name} was cancelled and came", [cancels[each.id], number])
