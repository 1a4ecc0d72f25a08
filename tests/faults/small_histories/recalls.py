"""A history of messages that their subscriber has again."""

from typing import Any

from tests.faults.operations_of_one import Recall
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


class Parts(parts.Parts):
    """A history in which all is well, and its operations by name: 3 and 4 are marked."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, Any] = {}
        self._add("wrote", ids=[1, 2])
        self._add("wrote", ids=[3, 4], marked=[3, 4])
        self._add("took", ids=[1, 2, 3])
        self._add("acked", ids=[1])
        self._add("maybe acked", ids=[2])
        self._add("resent", "resent", ids=[1, 2, 4], outcomes={"1": "resent", "2": "waiting", "4": "outstanding"})
        self._add("took", ids=[1, 2])
        self._add("acked", "late", ids=[1, 2])
        self._add("purged", counts={"purged": 2})
        self._add("took", "after", ids=[])
        self._add("replayed", counts={"replayed": 2, "discarded": 2})
        self._add("took", ids=[1])
        self._add("acked", ids=[1, 2])
        self._add("sought")
        self._add("took", ids=[1, 2, 3, 4])
        self._add("acked", ids=[4])
        self._add("wrote", ids=[5])
        self._add("acked", ids=[5])
        self._add("undone")
        self._add("took", "last", ids=[5])
        self._add("acked", "last ack", ids=[5])
        self._add("left")

    def _add(self, what: str, name: str = "", **fields: Any) -> None:
        at = float(len(self.history.operations))
        self.by_name[name or what] = Recall(who="x", began=at, ended=at + 0.5, what=what, **fields)  # type: ignore[arg-type]
        self.history.add(self.by_name[name or what])

    def __getattr__(self, name: str) -> Any:
        return self.by_name[name]


def _come_after_a_purge(parts: Parts) -> None:
    parts.after.ids = [3]


def _come_after_an_undo(parts: Parts) -> None:
    parts.last.ids = [4, 5]


def _come_after_an_ack(parts: Parts) -> None:
    parts.last.ids = [1, 5]


def _resend_what_is_there(parts: Parts) -> None:
    parts.resent.outcomes["4"] = "resent"


def _resend_nothing(parts: Parts) -> None:
    parts.resent.outcomes["1"] = "notRetained"


def _purge_one_less(parts: Parts) -> None:
    parts.purged.counts["purged"] = 1


def _replay_one_twice(parts: Parts) -> None:
    parts.replayed.counts["replayed"] = 3


def _replay_what_was_purged(parts: Parts) -> None:
    parts.replayed.counts.update(replayed=3, discarded=1)


def _leave_one_out(parts: Parts) -> None:
    parts.by_name["last ack"].ids = []


PLANTS: Plants = {
    "come after a purge": (_come_after_a_purge, {"recalled, not meant"}),
    "come after an undo": (_come_after_an_undo, {"recalled, not meant"}),
    "come after an ack": (_come_after_an_ack, {"recalled, not meant"}),
    "resend what is there": (_resend_what_is_there, {"recall counts"}),
    "resend nothing": (_resend_nothing, {"recall counts"}),
    "purge one less": (_purge_one_less, {"recall counts"}),
    "replay one twice": (_replay_one_twice, {"recall counts"}),
    "replay what was purged": (_replay_what_was_purged, {"recall counts"}),
    "leave one out": (_leave_one_out, {"recalled, forgotten"}),
}
