"""What a subscription gave up is known exactly where one alone has a hand in it: all of that comes back by a
recovery, once and under its first id, or goes to another topic, once; nothing else does (G2).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.operations_of_one import Recovery

_NOT_MEANT, _FORGOTTEN, _COUNTS, _ID = (
    "recovered, not meant",
    "given up, forgotten",
    "recovery counts",
    "recovered as another",
)


@dataclass
class _Has:
    """By name: what is to come for certain (`must`), and what may; what was given up, when it was looked at last
    (`dead_letters`), and what was `sent`.
    """

    ids: dict[str, int] = field(default_factory=dict)
    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    dead_letters: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)


def check_recoveries(view: View) -> Iterator[Violation]:
    has = _Has()
    for number, each in all_of(view, Recovery):
        for rule, text in _found(has, each):
            yield violation(rule, f"{each.what}: {text}", [number])
        _follow(has, each)


def _found(has: _Has, each: Recovery) -> Iterator[tuple[str, str]]:
    names = [one.name for one in each.came]
    match each.what:
        case "took":
            if other := {*names} - has.may:
                yield _NOT_MEANT, f"{sorted(other)[:5]} came"
            yield from _of_one_id(has, each)
        case "gave up":
            if len(names) > len({*names}):
                yield _NOT_MEANT, f"{len(names)} letters of {len({*names})} messages"
            if other := {*names} - has.may:
                yield _NOT_MEANT, f"{sorted(other)[:5]} are letters, and were done with"
            if lost := has.must - {*names}:
                yield _FORGOTTEN, f"{sorted(lost)[:5]} are no letters, and nothing is left"
            yield from _of_one_id(has, each)
        case "recovered" if each.counts != _counts("redriven", has):
            yield _COUNTS, f"{each.counts} of {len(has.dead_letters)} letters"
        case "sent" if each.counts != _counts("sent", has):
            yield _COUNTS, f"{each.counts} of {len(has.dead_letters)} letters"
        case "left":
            yield from _left(has, each)


def _counts(outcome: str, has: _Has) -> dict[str, int]:
    return {outcome: len(has.dead_letters)} if has.dead_letters else {}


def _of_one_id(has: _Has, each: Recovery) -> Iterator[tuple[str, str]]:
    for one in each.came:
        if has.ids.get(one.name, one.id) != one.id:
            yield _ID, f"{one.name} has the id {one.id}, and had {has.ids[one.name]}"


def _left(has: _Has, each: Recovery) -> Iterator[tuple[str, str]]:
    """Of what was sent, all of which has come."""
    if has.must:
        yield _FORGOTTEN, f"{sorted(has.must)[:5]} were to come"
    ids: dict[str, set[int]] = defaultdict(set)
    for one in each.came:
        ids[one.name].add(one.id)
    if other := ids.keys() - has.sent:
        yield _NOT_MEANT, f"{sorted(other)[:5]} were not sent, and came"
    if lost := has.sent - ids.keys():
        yield _FORGOTTEN, f"{sorted(lost)[:5]} were sent, and did not come"
    if twice := [name for name, of_name in ids.items() if len(of_name) > 1]:
        yield _COUNTS, f"{sorted(twice)[:5]} were sent twice"
    if same := [name for name, of_name in ids.items() if has.ids.get(name) in of_name]:
        yield _ID, f"{sorted(same)[:5]} were sent, and have their first ids"


def _follow(has: _Has, each: Recovery) -> None:
    names = {one.name for one in each.came}
    match each.what:
        case "wrote":
            has.ids |= {one.name: one.id for one in each.came}
            has.must |= names
            has.may |= names
        case "acked":
            has.must -= names
            has.may -= names
        case "maybe acked":
            has.must -= names
        case "gave up":
            has.dead_letters, has.must, has.may = names, {*names}, {*names}
        case "recovered":
            has.dead_letters = set()
        case "sent":
            has.sent |= has.dead_letters
            has.must -= has.dead_letters
            has.may -= has.dead_letters
            has.dead_letters = set()
