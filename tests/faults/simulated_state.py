"""What the simulated broker has of each subscription."""

from dataclasses import dataclass, field

from tests.faults.history import Reported, Subscription


@dataclass(slots=True, eq=False)
class Message:
    id: int
    text: str
    key: str
    attributes: dict[str, str]
    attempts: int = 0
    acked: bool = False
    reported: list[Reported] = field(default_factory=list)

    def report(self, at: float, event: str, answer: str = "") -> None:
        """Write it into the journal."""
        self.reported.append(Reported(at, event, self.attempts, answer))


@dataclass(slots=True, eq=False)
class Lease:
    """One delivery: of one message, or of a run of a key."""

    messages: list[Message]
    until: float
    acked: set[int] = field(default_factory=set)


@dataclass(slots=True)
class State:
    """A subscription in the broker."""

    subscription: Subscription
    messages: list[Message] = field(default_factory=list)
    leases: dict[str, tuple[Lease, Message]] = field(default_factory=dict)  # by ack id
    received: list[tuple[float, list[str]]] = field(default_factory=list)  # ack ids of responses, and their ends
    snapshots: dict[str, set[int]] = field(default_factory=dict)  # the ids that were acked

    def holder(self, message: Message, now: float) -> Lease | None:
        """The live lease of a message, or of its key."""
        keyed = self.subscription.ordered and message.key
        for lease, one in self.leases.values():
            same = one.key == message.key if keyed else one is message
            if same and lease.until > now and len(lease.acked) < len(lease.messages):
                return lease
        return None
