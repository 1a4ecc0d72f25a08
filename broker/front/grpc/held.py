"""What a call holds of requests, in the budgets of its connection and of the process."""

from broker.front.admission import Admission
from broker.front.request_memory import RequestMemory

MAX_HELD_BYTES = 67_108_864  # of requests of a connection
BODY_TICKS = 3  # of the connection (20 s), after which a message has arrived: it must not hold its memory for ever


class ConnectionBudget:
    """The bytes that the calls of one connection hold, within `requests`, which are the process's."""

    def __init__(self, requests: RequestMemory) -> None:
        self.requests = requests
        self.held = 0


class Holder:
    """A call that holds bytes of requests.  A base class, since each call is one."""

    __slots__ = ("_admission", "_arriving", "_budget", "_held")

    def __init__(self, budget: ConnectionBudget, admission: Admission) -> None:
        self._budget = budget
        self._admission = admission
        self._held = 0
        self._arriving = 0  # of a message that is not complete

    def _hold(self, size: int, *, arriving: int) -> None:
        """Hold so many bytes, in all.  Raises the refusal if there is no room for what is more than before."""
        if arriving or self._arriving:
            self._arrives(arriving)
        more, budget = size - self._held, self._budget
        requests = budget.requests
        if more > 0:
            if requests.held + more > requests.limit:
                self._admission.check(requests, more)
            if budget.held + more > MAX_HELD_BYTES:
                raise self._admission.refusal(
                    "This connection sends too many large requests at one time; try again."
                )
        self._held = size
        budget.held += more
        requests.held += more

    def _arrives(self, size: int) -> None:
        more, requests = size - self._arriving, self._budget.requests
        if more > 0:
            self._admission.check_arriving(requests, more, own=self._arriving)
        self._arriving = size
        requests.arriving += more

    def _let_go(self) -> None:
        if self._arriving:
            self._arrives(0)
        self._budget.held -= self._held
        self._budget.requests.held -= self._held
        self._held = 0
