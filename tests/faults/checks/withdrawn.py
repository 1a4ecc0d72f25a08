"""What was retracted, and that was answered, is handed out to nobody from then on; what is put in its place comes
once, and both or neither happens.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import AnyOperation, Retract, Took, Wrote

T = TypeVar("T", bound=AnyOperation)


def all_of(view: View, kind: type[T]) -> list[tuple[int, T]]:
    """With their numbers."""
    return [(number, each) for number, each in enumerate(view.history.operations) if isinstance(each, kind)]


def check_retracted(view: View) -> Iterator[Violation]:
    taken = all_of(view, Took)
    for number, retract in all_of(view, Retract):
        if retract.outcome != "ok":
            continue
        for other, took in taken:
            for each in took.came:
                if each.id in retract.ids and took.began >= retract.ended:
                    yield violation("retracted, and came", f"{each.name} was retracted and came", [number, other])
                elif each.id in retract.never_out:
                    reported = f"{each.name} came, and is said to have been handed out to nobody"
                    yield violation("told wrongly", reported, [number, other])


def check_replaced(view: View) -> Iterator[Violation]:
    """By the time that what is in its place has come, the other has been retracted."""
    taken = all_of(view, Took)
    for number, retract in all_of(view, Retract):
        put = [(at, took.ended) for at, took in taken for each in took.came if retract.put == each.name]
        if not retract.put or not put:
            continue
        for other, took in taken:
            for each in took.came:
                if each.id in retract.ids and took.began >= put[0][1]:
                    text = f"{each.name} came after {retract.put}, which is in its place"
                    yield violation("replaced, and came", text, [number, put[0][0], other])


def check_written_come(view: View) -> Iterator[Violation]:
    """Each that was answered comes under its id, and once, but for what may have been retracted."""
    sent, answered = _sent(view), _answered(view)
    retracted = {id_ for _, each in all_of(view, Retract) if each.outcome != "failed" for id_ in each.ids}
    came: dict[str, set[int]] = defaultdict(set)
    taken = all_of(view, Took)
    for number, took in taken:
        for each in took.came:
            came[each.name].add(each.id)
            if each.name not in sent:
                yield violation("invented", f"nobody published {each.name}", [number])
            if each.early > 0:
                yield violation("early", f"{each.name} came {each.early:.3f} s before its time", [number])
    for name, ids in came.items():
        if len(ids | answered.get(name, set())) > 1:
            yield violation("stored twice", f"{name} has the ids {sorted(ids | answered.get(name, set()))}")
    if any(took.final for _, took in taken):
        for name, ids in answered.items():
            if name not in came and not ids & retracted:
                yield violation("lost", f"{name} was answered and never came")


def _sent(view: View) -> set[str]:
    """What may have been published.  A replacement that was refused, and never tried in vain, was not."""
    names = {name for _, each in all_of(view, Wrote) if each.outcome != "failed" for name in each.names}
    return names | {each.put for _, each in all_of(view, Retract) if each.outcome != "failed"}


def _answered(view: View) -> dict[str, set[int]]:
    """The ids of each name."""
    ids: dict[str, set[int]] = defaultdict(set)
    for _, wrote in all_of(view, Wrote):
        for name, id_ in zip(wrote.names, wrote.ids, strict=False):
            ids[name].add(id_)
    put: dict[int, str] = {}  # who replaces once more gets the id of what is in the place already
    for _, retract in all_of(view, Retract):
        if retract.put and retract.outcome == "ok":
            ids[put.setdefault(retract.put_id, retract.put)].add(retract.put_id)
    return ids
