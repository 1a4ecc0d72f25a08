"""A budget for the bytes of the requests that a process holds.

Senders of large requests share the budget fairly (fairness/shared_capacity.py).  The sender is the project in the
path over REST, and the connection over gRPC, where the project is not known before the request is complete.  Small
requests are not counted by sender, because the shares of the large ones leave capacity for them.  Large requests
that are complete are not counted by sender either while half of the budget is free, because then there is capacity
for every sender.

Until the caller has shown a permission for the call, the request counts against a sixteenth of the budget, which
all such callers share.  Decompressed requests also count against a quarter of the budget, which callers share.
"""

from broker.fairness.shared_capacity import Path, SharedCapacity

LARGE_BYTES = 4_096  # a larger request is a large one


class RequestMemory:
    """`held` bytes of at most `limit`; the budget is one process's, shared by its APIs.

    Those of requests that are not complete may be three quarters of the limit, so that senders who are slow, or who
    never end, do not take all of it from those who send at once.

    `received`, `unpacked` and `decoded` are the bytes of requests that came, that were decompressed, and that were
    handed to handlers, which decode them, since the start.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.received = self.unpacked = self.decoded = 0
        self._large = SharedCapacity(limit)
        self._arriving = SharedCapacity(limit * 3 // 4)
        self._unadmitted = SharedCapacity(limit // 16)
        self._unpacked = SharedCapacity(limit // 4)

    @property
    def arriving(self) -> int:
        """The bytes of requests that are not complete."""
        return self._arriving.total + self._unadmitted.total

    @property
    def unadmitted(self) -> int:
        """Bytes held by requests whose callers are not known to have permission."""
        return self._unadmitted.total

    def has_capacity(self, size: int, *, beyond: int = 0) -> bool:
        """Whether so many bytes more stay within the limit, or within `beyond` bytes past it.

        Something is always taken when nothing is held, however small the limit.
        """
        return not self.held or self.held + size <= self.limit + beyond

    def take_share(self, sender: Path, size: int, *, own: int) -> bool:
        """Counts so many bytes more of a large request that has `own` already; False: its sender has its share.

        A single request has room, however small the limit; the same is true in `arrive`.
        """
        return _take(self._large, sender, size, own)

    def take_unnamed(self, size: int) -> bool:
        """Hold a large request without asking whose it is; False: half of all is held, so it has to be asked."""
        held = self.held + size
        if 2 * held > self.limit:
            return False
        self.held = held
        self._large.hold(amount=size)
        return True

    def give_back_unnamed(self, size: int) -> None:
        """Gives back bytes that `take_unnamed` took."""
        self.held -= size
        self._large.give_back(amount=size)

    def give_back_share(self, sender: Path, size: int) -> None:
        self._large.give_back(sender, amount=size)

    def arrive(self, sender: Path, size: int, *, own: int, admitted: bool = True) -> bool:
        """Count so many bytes more of a request that is not complete, and has `own` already; False: no room.

        `admitted`: its caller has shown a permission for the call.
        """
        return _take(self._shared_capacity(admitted), sender, size, own)

    def arrived(self, sender: Path, size: int, *, admitted: bool = True) -> None:
        """Counts bytes as arrived: their request is complete, or they were counted as not admitted."""
        self._shared_capacity(admitted).give_back(sender, amount=size)

    def unpack(self, caller: Path, size: int, *, own: int) -> bool:
        """Count so many decompressed bytes more of a request that has `own` already; False: no room."""
        if not _take(self._unpacked, caller, size, own):
            return False
        self.unpacked += size
        return True

    def give_back_unpacked(self, caller: Path, size: int) -> None:
        self._unpacked.give_back(caller, amount=size)

    def _shared_capacity(self, admitted: bool) -> SharedCapacity:
        return self._arriving if admitted else self._unadmitted


def _take(shared_capacity: SharedCapacity, sender: Path, size: int, own: int) -> bool:
    if shared_capacity.total <= own:
        shared_capacity.hold(sender, amount=size)
        return True
    return shared_capacity.take(sender, amount=size) is None
