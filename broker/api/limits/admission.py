"""Admits requests to a budget of bytes, which the APIs of a process share."""

from collections.abc import Hashable
from dataclasses import dataclass

from broker.api.limits.request_memory import RequestMemory
from broker.api.rpc import Size
from broker.model.ack_id import MAX_ACK_BYTES
from broker.model.errors import BrokerError, ResourceExhausted, Unavailable
from broker.net.limits.payload import MAX_PAYLOAD_BYTES

MAX_FREE_BYTES = 65_536  # of a call that needs no permission; 100 permissions to test take a tenth of it
_MAX_BYTES = {Size.ACK_IDS: MAX_ACK_BYTES, Size.REQUEST: MAX_PAYLOAD_BYTES, Size.SMALL: MAX_FREE_BYTES}


@dataclass(frozen=True, slots=True)
class Admission:
    """The admission of a kind of request: the error if there is no room, and the bytes allowed past the limit.

    A `sender` has a share of large requests (request_memory.py), and within it one for each refusal: a client that
    publishes too much can still ack.  `most`: how many bytes a request may have, as it was sent and decompressed.
    `unpacks`: a small body may become a large one, and counts as one.
    """

    refusal: type[BrokerError]
    beyond: int
    most: int = MAX_PAYLOAD_BYTES
    unpacks: bool = False

    def check(self, memory: RequestMemory, size: int) -> None:
        """Raises the refusal if `size` bytes more find no room."""
        if not memory.has_capacity(size, beyond=self.beyond):
            raise self.refusal("The broker holds as much of requests as it may; slow down and try again.")

    def arrive(
        self, memory: RequestMemory, sender: Hashable, size: int, *, own: int, admitted: bool = True
    ) -> None:
        """Count `size` more bytes of a request that is not complete and has `own` bytes already.

        `admitted`: it is known that its caller has permission to call.  Raises the refusal.
        """
        if memory.arrive((sender,), size, own=own, admitted=admitted):
            return
        if admitted:
            raise self.refusal(f"Too many large requests of {sender} arrive at one time; slow down and try again.")
        raise self.refusal(
            f"Too many requests whose callers have not shown a permission yet arrive at one time ({sender}); "
            "slow down and try again."
        )

    def unpack(self, memory: RequestMemory, caller: Hashable, size: int, *, own: int) -> None:
        """Count `size` more decompressed bytes of a request that has `own` already.  Raises the refusal."""
        if not memory.unpack((caller,), size, own=own):
            raise self.refusal(f"Too many compressed requests of {caller} are under way; slow down and try again.")

    def take_share(self, memory: RequestMemory, sender: Hashable, size: int, *, own: int) -> None:
        """Count so much more of a large request, beyond its `own`.  Raises the refusal."""
        if not memory.take_share((sender, self.refusal.code), size, own=own):
            raise self.refusal(f"Too many large requests of {sender} are under way; slow down and try again.")

    def give_back_share(self, memory: RequestMemory, sender: Hashable, size: int) -> None:
        memory.give_back_share((sender, self.refusal.code), size)


def admission_of(size: Size, memory: RequestMemory) -> Admission:
    """Publishes may fill the memory for requests; other calls may take a quarter more."""
    if size in (Size.PUBLISH, Size.IMPORT):
        return Admission(ResourceExhausted, 0, unpacks=size is Size.IMPORT)
    return Admission(Unavailable, memory.limit // 4, _MAX_BYTES[size])
