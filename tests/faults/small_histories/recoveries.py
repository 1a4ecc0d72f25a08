"""A history of dead letters that come back."""

from typing import Any

from tests.faults.operation import Came
from tests.faults.operations_of_one import Recovery
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


def _came(names: str, first_id: int = 0) -> list[Came]:
    return [Came(first_id + ord(name), name) for name in names]


class Parts(parts.Parts):
    """A history in which all is well, and its operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, Any] = {}
        self._add("wrote", came=_came("abcd"))
        self._add("gave up", "first", came=_came("abcd"))
        self._add("recovered", counts={"redriven": 4})
        self._add("took", came=_came("abc"))
        self._add("acked", came=_came("a"))
        self._add("maybe acked", came=_came("b"))
        self._add("gave up", "second", came=_came("cd"))
        self._add("sent", counts={"sent": 2})
        self._add("wrote", "later", came=_came("e"))
        self._add("gave up", "third", came=_came("e"))
        self._add("recovered", "again", counts={"redriven": 1})
        self._add("took", "last", came=_came("e"))
        self._add("acked", "last ack", came=_came("e"))
        self._add("gave up", "none")
        self._add("recovered", "nothing")
        self._add("left", came=[*_came("cd", 1000), *_came("c", 1000)])

    def _add(self, what: str, name: str = "", **fields: Any) -> None:
        at = float(len(self.history.operations))
        self.by_name[name or what] = Recovery(who="x", began=at, ended=at + 0.5, what=what, **fields)  # type: ignore[arg-type]
        self.history.add(self.by_name[name or what])

    def __getattr__(self, name: str) -> Any:
        return self.by_name[name.replace("_", " ")]


def _lose_a_dead_letter(parts: Parts) -> None:
    parts.second.came = _came("c")
    parts.sent.counts["sent"] = 1
    parts.left.came = _came("c", 1000)


def _keep_a_dead_letter_of_what_came_back(parts: Parts) -> None:
    parts.second.came = _came("acd")
    parts.sent.counts["sent"] = 3
    parts.left.came = _came("acd", 1000)


def _make_two_dead_letters(parts: Parts) -> None:
    parts.third.came = _came("ee")


def _recover_twice(parts: Parts) -> None:
    parts.recovered.counts["redriven"] = 5


def _recover_none(parts: Parts) -> None:
    parts.recovered.counts = {"alreadyThere": 4}


def _recover_what_is_done_with(parts: Parts) -> None:
    parts.last.came = _came("ae")


def _recover_under_another_id(parts: Parts) -> None:
    parts.took.came = _came("ab", 7)


def _do_not_bring_back(parts: Parts) -> None:
    parts.last.came = []
    parts.last_ack.came = []


def _send_one_less(parts: Parts) -> None:
    parts.sent.counts["sent"] = 1


def _send_and_lose(parts: Parts) -> None:
    parts.left.came = _came("c", 1000)


def _send_twice(parts: Parts) -> None:
    parts.left.came += _came("c", 2000)


def _send_what_was_recovered(parts: Parts) -> None:
    parts.left.came += _came("a", 2000)


def _send_under_the_first_id(parts: Parts) -> None:
    parts.left.came = _came("cd")


PLANTS: Plants = {
    "lose a letter": (_lose_a_dead_letter, {"given up, forgotten"}),
    "keep a letter of what came back": (_keep_a_dead_letter_of_what_came_back, {"recovered, not meant"}),
    "make two letters": (_make_two_dead_letters, {"recovered, not meant"}),
    "recover twice": (_recover_twice, {"recovery counts"}),
    "recover none": (_recover_none, {"recovery counts"}),
    "recover what is done with": (_recover_what_is_done_with, {"recovered, not meant"}),
    "recover under another id": (_recover_under_another_id, {"recovered as another"}),
    "do not bring back": (_do_not_bring_back, {"given up, forgotten"}),
    "send one less": (_send_one_less, {"recovery counts"}),
    "send and lose": (_send_and_lose, {"given up, forgotten"}),
    "send twice": (_send_twice, {"recovery counts"}),
    "send what was recovered": (_send_what_was_recovered, {"recovered, not meant"}),
    "send under the first id": (_send_under_the_first_id, {"recovered as another"}),
}
