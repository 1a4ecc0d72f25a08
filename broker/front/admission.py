"""Which requests find room: a budget of bytes, which the doors of a process share."""

from collections.abc import Hashable
from dataclasses import dataclass

from broker.domain.errors import BrokerError, ResourceExhausted, Unavailable
from broker.front.request_memory import RequestMemory


@dataclass(frozen=True, slots=True)
class Admission:
    """What is told a caller whose request finds no room, and how many bytes past the limit it may go.

    A `sender` has a share of large requests (request_memory.py), and within it one for each refusal: whoever
    publishes too much can still ack.  `unpacks`: a small body may become a large one, and counts as one.
    """

    refusal: type[BrokerError]
    beyond: int
    unpacks: bool = False

    def check(self, memory: RequestMemory, size: int) -> None:
        """Raises the refusal if `size` bytes more find no room."""
        if not memory.has_room(size, beyond=self.beyond):
            raise self.refusal("The broker holds as much of requests as it may; slow down and try again.")

    def arrive(self, memory: RequestMemory, sender: Hashable, size: int, *, own: int) -> None:
        """Count so much more of a request that is not complete, beyond its `own`.  Raises the refusal."""
        if not memory.arrive((sender,), size, own=own):
            raise self.refusal(f"Too many large requests of {sender} arrive at one time; slow down and try again.")

    def take_share(self, memory: RequestMemory, sender: Hashable, size: int, *, own: int) -> None:
        """Count so much more of a large request, beyond its `own`.  Raises the refusal."""
        if not memory.take_share((sender, self.refusal.code), size, own=own):
            raise self.refusal(f"Too many large requests of {sender} are under way; slow down and try again.")

    def give_back_share(self, memory: RequestMemory, sender: Hashable, size: int) -> None:
        memory.give_back_share((sender, self.refusal.code), size)


def admission_of(rpc: str, memory: RequestMemory) -> Admission:
    """Publishes may fill the budget; other calls ("Subscriber.Pull", …) go on a quarter beyond it."""
    if rpc in ("Publisher.Publish", "ImportTopic"):
        return Admission(ResourceExhausted, 0, unpacks=rpc == "ImportTopic")
    return Admission(Unavailable, memory.limit // 4)
