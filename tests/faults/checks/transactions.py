"""What an application published in its own transactions comes if they committed: once, all of it, in the order in
which they did; nothing comes of those that were rolled back, and acks in them do not count.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.faults.checks.view import View
from tests.faults.checks.violation import Violation, violation
from tests.faults.checks.withdrawn import all_of
from tests.faults.history import Fault, Relayed, Transaction


def _ids(relayed: Relayed) -> Mapping[str, set[int]]:
    """Of each message that came, by its name."""
    ids: dict[str, set[int]] = defaultdict(set)
    for each in relayed.came:
        ids[each.name].add(each.id)
    return ids


def check_transactions(view: View) -> Iterator[Violation]:
    transactions = all_of(view, Transaction)
    for at, relayed in all_of(view, Relayed):
        ids = _ids(relayed)
        for name in ids.keys() - {name for _, each in transactions for name in each.names}:
            yield violation("invented", f"nobody published {name}", [at])
        for name, of_name in ids.items():
            if len(of_name) > 1:
                yield violation("stored twice", f"{name} came under the ids {sorted(of_name)}", [at])
        for number, each in transactions:
            came = [name for name in each.names if name in ids]
            if each.outcome == "failed" and came:
                yield violation("rolled back, and came", f"{came[0]} was rolled back and came", [number, at])
            elif each.outcome == "ok" and len(came) < len(each.names):
                missing = next(name for name in each.names if name not in ids)
                yield violation("lost", f"{missing} was committed and never came", [number, at])
            elif 0 < len(came) < len(each.names):
                yield violation("half a transaction", f"of {each.names} only {came} came", [number, at])


def check_commit_order(view: View) -> Iterator[Violation]:
    """Of a key, whose messages are all in one log: an application's transactions come one behind the other."""
    for at, relayed in all_of(view, Relayed):
        ids = _ids(relayed)
        last: dict[str, tuple[int, str]] = {}
        for number, each in all_of(view, Transaction):
            for name in each.names if each.key else ():
                for id_ in ids.get(name, set()):
                    if id_ < last.get(each.key, (0, ""))[0]:
                        text = f"{name} came before {last[each.key][1]}, which was committed earlier"
                        yield violation("commit order", text, [number, at])
                    last[each.key] = id_, name


def check_acks_in_transactions(view: View) -> Iterator[Violation]:
    """By what was nacked at the end, all that was ever handed out: if its ack counted it does not come again."""
    if any(fault.name == "step the clock" for _, fault in all_of(view, Fault)):
        return  # no lease is as long as a clock may step
    transactions = all_of(view, Transaction)
    acked = {id_: number for number, each in transactions if each.outcome == "ok" for id_ in each.acked}
    perhaps = {id_ for _, each in transactions if each.outcome == "unknown" for id_ in each.acked}
    for at, relayed in all_of(view, Relayed):
        for id_ in sorted(acked.keys() & set(relayed.again)):
            yield violation("acked, and came again", f"the ack of {id_} was committed", [acked[id_], at])
        for id_ in sorted(set(relayed.nacked) - acked.keys() - perhaps - set(relayed.again)):
            yield violation("forgotten", f"{id_} was never acked in what was committed, and is gone", [at])
