"""The filter at the time of its publish decides whether a message comes, however often the filter changes later."""

from collections.abc import Iterator

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.operations_of_one import Filtered

_NOT_MEANT, _FORGOTTEN = "filtered, not meant", "filtered, forgotten"


def check_changed_filters(view: View) -> Iterator[Violation]:
    wanted = ""  # the kind that the filter asks for
    matched: set[str] = set()
    awaited: set[str] = set()  # those that have not come since they were published, or since the last seek
    for number, each in all_of(view, Filtered):
        match each.what:
            case "changed":
                wanted = each.kind
            case "wrote" if wanted in ("", each.kind):
                matched.update(each.names)
                awaited.update(each.names)
            case "took":
                if others := {*each.names} - matched:
                    yield violation(_NOT_MEANT, f"{sorted(others)[:5]} did not match when published", [number])
                awaited.difference_update(each.names)
            case "sought":
                awaited = {*matched}
            case "left" if awaited:
                yield violation(_FORGOTTEN, f"{sorted(awaited)[:5]} matched, and did not come", [number])
