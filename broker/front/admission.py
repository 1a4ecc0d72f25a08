"""Which requests find room: a budget of bytes, which the doors of a process share."""

from dataclasses import dataclass

from broker.domain.errors import BrokerError, ResourceExhausted, Unavailable
from broker.front.request_memory import RequestMemory


@dataclass(frozen=True, slots=True)
class Admission:
    """What is told a caller whose request finds no room, and how many bytes past the limit it may go."""

    refusal: type[BrokerError]
    beyond: int

    def check_arriving(self, memory: RequestMemory, size: int, *, own: int) -> None:
        """Raises the refusal if so much more of a request that is not complete, beyond its `own`, finds no room."""
        if not memory.may_arrive(size, own=own):
            raise self.refusal("Too many large requests arrive at one time; slow down and try again.")

    def check(self, memory: RequestMemory, size: int) -> None:
        """Raises the refusal if `size` bytes more find no room."""
        if not memory.has_room(size, beyond=self.beyond):
            raise self.refusal("The broker holds as much of requests as it may; slow down and try again.")


def admission_of(rpc: str, memory: RequestMemory) -> Admission:
    """Publishes may fill the budget; other calls ("Subscriber.Pull", …) go on a quarter beyond it."""
    if rpc == "Publisher.Publish":
        return Admission(ResourceExhausted, 0)
    return Admission(Unavailable, memory.limit // 4)
