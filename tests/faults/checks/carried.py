"""What is exported is all that a topic retains, in the order of keys; what of it is imported is there once, in that
order, however often its parts were sent (G2).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.operations_of_one import Carried

_EXPORTED, _IMPORTED, _ORDER = "exported", "imported", "carried order"


def check_carried(view: View) -> Iterator[Violation]:
    keys: dict[str, str] = {}  # by name, in the order in which they were written
    ids: dict[str, int] = {}
    moved: list[str] = []  # names, of one move after the other
    for number, each in all_of(view, Carried):
        names = [one.name for one in each.came]
        match each.what:
            case "wrote":
                keys |= dict.fromkeys(names, each.key)
                ids |= {one.name: one.id for one in each.came}
            case "moved":
                if Counter(names) != Counter(keys.keys()):
                    yield violation(_EXPORTED, _difference(names, [*keys]), [number])
                if any(ids.get(one.name) != one.id for one in each.came):
                    yield violation(_EXPORTED, "some have other ids", [number])
                yield from _out_of_order(number, names, [*keys], keys)
                moved += names
            case "read":
                names = [name for _, name in sorted({(one.id, one.name) for one in each.came})]
                if Counter(names) != Counter(moved):
                    yield violation(_IMPORTED, _difference(names, moved), [number])
                else:
                    yield from _out_of_order(number, names, moved, keys)


def _difference(found: Sequence[str], meant: Sequence[str]) -> str:
    more, less = Counter(found) - Counter(meant), Counter(meant) - Counter(found)
    return f"too often {[*more.items()][:5]}, not often enough {[*less.items()][:5]}"


def _out_of_order(
    number: int, found: Sequence[str], meant: Sequence[str], keys: dict[str, str]
) -> Iterator[Violation]:
    for key in {*keys.values()} - {""}:
        orders = [[name for name in names if keys.get(name) == key] for names in (found, meant)]
        if orders[0] != orders[1]:
            at = next(n for n, (one, other) in enumerate(zip(*orders, strict=False)) if one != other)
            text = f"of {key!r} {orders[0][at]} stands where {orders[1][at]} was to"
            yield violation(_ORDER, text, [number])
