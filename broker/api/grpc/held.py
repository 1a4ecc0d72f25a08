"""The bytes of requests that a call holds, in the budgets of its connection and of the process."""

from collections.abc import Hashable

from broker.api.limits.admission import Admission
from broker.api.limits.request_memory import LARGE_BYTES, RequestMemory

MAX_HELD_BYTES = 67_108_864  # of requests of a connection
BODY_TICKS = 3  # of the connection (20 s), within which a message must arrive: its memory must be freed


class ConnectionBudget:
    """The bytes that the calls of one connection hold, within `requests`, which are the process's."""

    def __init__(self, requests: RequestMemory) -> None:
        self.requests = requests
        self.held = 0

    def __str__(self) -> str:
        return "this connection"


class Holder:
    """A call that holds bytes of requests.  A base class, since each call is one.

    Until it is admitted, its caller has not shown a permission for it: whatever it holds beyond LARGE_BYTES, and
    what is not complete, counts against the share of such calls.
    """

    __slots__ = ("_admission", "_admitted", "_arriving", "_budget", "_held", "_unpacked", "_unpacker")

    def __init__(self, budget: ConnectionBudget, admission: Admission, *, admitted: bool) -> None:
        self._budget = budget
        self._admission = admission
        self._admitted = admitted
        self._held = 0
        self._arriving = 0  # of a message that is not complete, or of a call that is not admitted
        self._unpacked = 0  # bytes of decompressed messages, which are held besides the received bytes
        self._unpacker: Hashable = None  # whose share of decompressed messages it uses

    def _admit(self, *, arriving: int) -> None:
        """`arriving` of the bytes that it holds are of a message that is not complete.  Raises the refusal."""
        if not self._admitted:
            if self._arriving:
                self._arrives(0)
            self._admitted = True
            self._hold(self._held, arriving=arriving)

    def _hold(self, size: int, *, arriving: int) -> None:
        """Hold so many bytes of what was sent, in all, besides what is decompressed.

        Raises the refusal if there is no room for what is more than before.
        """
        size += self._unpacked
        if not self._admitted and size > LARGE_BYTES:
            arriving = size
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
        if size > LARGE_BYTES or self._held > LARGE_BYTES:
            self._share(size)
        self._held = size
        budget.held += more
        requests.held += more

    def _unpack(self, caller: Hashable, size: int) -> None:
        """Hold `size` bytes more that were decompressed, as a part of the caller's share.  Raises the refusal."""
        self._admission.unpack(self._budget.requests, caller, size, own=self._unpacked)
        sent = self._held - self._unpacked
        self._unpacker = caller
        self._unpacked += size
        self._hold(sent, arriving=self._arriving)

    def _drop_unpacked(self) -> None:
        """Drops the decompressed messages, which are not needed any more, and gives back what they held."""
        if self._unpacked:
            self._budget.requests.give_back_unpacked((self._unpacker,), self._unpacked)
            self._unpacked = 0

    def _share(self, size: int) -> None:
        """Changes the size of the call to `size` bytes.

        Its present size is `_held`.  A large size is taken from the connection's share.
        """
        own, size = _shared(self._held), _shared(size)
        if size > own:
            self._admission.take_share(self._budget.requests, self._budget, size - own, own=own)
        else:
            self._admission.give_back_share(self._budget.requests, self._budget, own - size)

    def _arrives(self, size: int) -> None:
        more, requests = size - self._arriving, self._budget.requests
        if more > 0:
            self._admission.arrive(requests, self._budget, more, own=self._arriving, admitted=self._admitted)
        else:
            requests.arrived((self._budget,), -more, admitted=self._admitted)
        self._arriving = size

    def _let_go(self) -> None:
        self._drop_unpacked()
        if self._arriving:
            self._arrives(0)
        if self._held > LARGE_BYTES:
            self._share(0)
        self._budget.held -= self._held
        self._budget.requests.held -= self._held
        self._held = 0


def _shared(size: int) -> int:
    return size if size > LARGE_BYTES else 0
