"""What the clients of a run did and saw: operations with their times and outcomes, kept as JSON lines.

All times are of one monotonic clock, in seconds.  Whatever the broker did for an operation happened after it began;
it was done when the operation ended with outcome "ok".  Of an "unknown" one (no answer, or UNAVAILABLE) it may have
happened, in part or whole, even some time after it ended: a stopped process goes on with what it had.  A "failed"
one was refused for good, and did nothing.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from tests.faults.operation import Came, Operation
from tests.faults.operations_of_one import Alone

SEQUENCES_PER_SHARD = 10**15  # a message id is shard_id * this + sequence


def shard_of(message_id: int) -> int:
    """The shard that a message stands in."""
    return message_id // SEQUENCES_PER_SHARD


class Subscription(msgspec.Struct, tag="subscription", omit_defaults=True):
    """A subscription as it was created, before anything was published.  `wanted`: what its filter asks for.

    `journal`: what is written down of its messages ("": nothing), and of which share of them; `of_events`: it gets
    what the broker itself tells of the others; `redriven`: what it gave up comes back to it, at last all of it;
    `copies`: it gets what is copied of this topic, whose attributes are like `wanted`.
    """

    name: str
    topic: str
    ordered: bool = False
    exactly_once: bool = False
    ack_deadline: float = 10.0  # seconds; no lease is shorter unless somebody shortens it
    max_attempts: int | None = None
    dead_letter_topic: str | None = None
    wanted: dict[str, str] = {}
    journal: Literal["", "ALL", "FAILURES"] = ""
    journal_share: float = 1.0
    of_events: bool = False
    redriven: bool = False
    copies: str = ""

    def includes(self, event: str, attempt: int) -> bool:
        """Whether its journal does, of messages in its share."""
        return self.journal == "ALL" or attempt > 1 or event in ("NACKED", "REJECTED")

    @property
    def tells_all(self) -> bool:
        """There is something in its journal of every message."""
        return self.journal == "ALL" and self.journal_share == 1.0


class Publish(Operation, tag="publish", kw_only=True, omit_defaults=True):
    """One request; texts are unique in the run, key and attributes those of all its messages, as they are received.

    `breaks_schema`: one of them is not like the schema of the topic.
    """

    topic: str
    texts: list[str]
    key: str = ""
    attributes: dict[str, str] = {}
    ids: list[int] = []  # of an answered one, in the order of the texts
    breaks_schema: bool = False


class Delivery(msgspec.Struct, array_like=True, omit_defaults=True):
    """One message as it was received.  `attempt` is None where the broker does not show it."""

    id: int
    text: str
    ack_id: str
    key: str = ""
    attempt: int | None = None
    attributes: dict[str, str] = {}


class Receive(Operation, tag="receive", kw_only=True, omit_defaults=True):
    """One response (pull), one response of a stream, or one request of the broker (push).

    A pull began when its request was sent, and a response of a stream when the one before with messages was
    received, less what the client may have been late with it: nobody looked for its messages before that.  A push
    began when it arrived, and ended when it was answered with `status` (None: never).  One that is not ok has no
    deliveries.
    """

    subscription: str
    how: Literal["pull", "stream", "push"] = "pull"
    deliveries: list[Delivery] = []
    status: int | None = None


class Settle(Operation, tag="settle", kw_only=True, omit_defaults=True):
    """An ack (`seconds` is None), a nack (0), or a new deadline.  `refused`: ack ids and the reason given."""

    subscription: str
    ack_ids: list[str]
    seconds: float | None = None
    refused: dict[str, str] = {}


class Snapshot(Operation, tag="snapshot", kw_only=True, omit_defaults=True):
    """A snapshot was asked for; "failed" if there was none afterwards."""

    subscription: str
    name: str


class Seek(Operation, tag="seek", kw_only=True, omit_defaults=True):
    subscription: str
    snapshot: str


class Redrive(Operation, tag="redrive", kw_only=True, omit_defaults=True):
    """Long work: from when it was asked for until it was seen to have ended, as `state`, with its `counts`.

    One that is "unknown" was not found among the operations: it was not begun.
    """

    subscription: str
    name: str = ""
    state: str = ""
    done: int = 0
    counts: dict[str, int] = {}


class Copy(Operation, tag="copy", kw_only=True, omit_defaults=True):
    """Likewise; of what had been published on `topic` when it was asked for."""

    topic: str
    target: str
    name: str = ""
    state: str = ""
    done: int = 0
    counts: dict[str, int] = {}


class Purge(Operation, tag="purge", kw_only=True, omit_defaults=True):
    """Of all that there is."""

    subscription: str


class Discard(Operation, tag="discard", kw_only=True, omit_defaults=True):
    """Of dead letters, by the ids of their messages; what became of each."""

    subscription: str
    ids: list[int]
    outcomes: dict[str, str] = {}


class Named(Operation, tag="named", kw_only=True, omit_defaults=True):
    """A publish to a topic that knows repeats: messages with these deduplication ids, of which some may have been
    sent before.
    """

    names: list[str]
    ids: list[int] = []  # of an answered one


class Cancel(Operation, tag="cancel", kw_only=True, omit_defaults=True):
    """Of a message that is to come later; "failed": it was too late."""

    id: int


class Collected(Operation, tag="collected", kw_only=True, omit_defaults=True):
    """All that came of what was `Named`, at the end."""

    came: list[Came]


class Wrote(Operation, tag="wrote", kw_only=True, omit_defaults=True):
    """A publish of messages of which some are retracted later; names are unique in the run."""

    names: list[str]
    ids: list[int] = []  # of an answered one


class Retract(Operation, tag="retract", kw_only=True, omit_defaults=True):
    """Of messages that were published; `never_out`: those that the answer says were handed out to nobody.

    `put`: what was to be published in the place of the one message, and the id that it got.
    """

    ids: list[int]
    never_out: list[int] = []
    put: str = ""
    put_id: int = 0


class Took(Operation, tag="took", kw_only=True, omit_defaults=True):
    """A pull of what was written.  `final`: of several, one after the other, until nothing was left."""

    came: list[Came]
    final: bool = False


class Perishable(Operation, tag="perishable", kw_only=True, omit_defaults=True):
    """A publish of messages that are delivered for `ttl` seconds (0: for ever); names are unique in the run."""

    names: list[str]
    ids: list[int] = []  # of an answered one
    ttl: float = 0.0


class Bought(Operation, tag="bought", kw_only=True, omit_defaults=True):
    """What a pull of those brought; at the end (`final`) all that are dead letters."""

    came: list[Came] = []
    dead_letters: list[Came] = []
    final: bool = False


class Ticked(Operation, tag="ticked", kw_only=True, omit_defaults=True):
    """A schedule at its end: how many ticks it has had, with how many seconds between two of them, and the messages
    that came of it: id, number of the tick, and its time in seconds.
    """

    schedule: str
    step: float
    ticks: int
    came: list[tuple[int, int, float]]


class Transaction(Operation, tag="transaction", kw_only=True, omit_defaults=True):
    """An application's own: messages that it published, in this order, with one key; and those that it acked.

    "failed": it was rolled back.
    """

    names: list[str]
    key: str = ""
    acked: list[int] = []


class Relayed(Operation, tag="relayed", kw_only=True, omit_defaults=True):
    """All that came of transactions, once nothing was staged any more.

    `again`: which of the messages that it had received came once more, when all of them were nacked: `nacked`.
    """

    came: list[Came]
    nacked: list[int]
    again: list[int]


class Position(Operation, tag="position", kw_only=True, omit_defaults=True):
    """A look at what is left.  `final`: after the drain, when nothing may be."""

    subscription: str
    undelivered: int
    outstanding: int
    final: bool = False


class Reported(msgspec.Struct, array_like=True):
    """What the journal tells of a message: `event`, at a time of the history's clock, in which attempt."""

    at: float
    event: str
    attempt: int = 0
    answer: str = ""


class Timeline(Operation, tag="timeline", kw_only=True, omit_defaults=True):
    """The journal of a message, read after the drain, in the order in which it came."""

    subscription: str
    id: int
    reported: list[Reported] = []


class Fault(Operation, tag="fault", kw_only=True, omit_defaults=True):
    """Something broken on purpose, from its beginning until all was well again.

    `excuses`: what the broker did then, it may not have been able to do better.  `delays`: what brokers sent to
    clients in that time, they may have had at its end only.
    """

    name: str
    excuses: bool = True
    delays: bool = False


Act: TypeAlias = Redrive | Copy | Purge | Discard
Once: TypeAlias = Named | Cancel | Collected
Withdrawn: TypeAlias = Wrote | Retract | Took
Perishing: TypeAlias = Perishable | Bought
InTransactions: TypeAlias = Transaction | Relayed
Later: TypeAlias = Once | Withdrawn | Perishing | Ticked | InTransactions | Alone
AnyOperation: TypeAlias = Publish | Receive | Settle | Snapshot | Seek | Act | Later | Position | Timeline | Fault
_Line: TypeAlias = Subscription | AnyOperation

_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class History:
    """Subscriptions, and operations in the order in which they ended; an operation's number is its place there."""

    def __init__(self, subscriptions: Iterable[Subscription] = (), operations: Iterable[AnyOperation] = ()) -> None:
        self.subscriptions = list(subscriptions)
        self.operations = list(operations)

    def add(self, operation: AnyOperation) -> None:
        self.operations.append(operation)

    def publishes(self) -> Iterator[tuple[int, Publish]]:
        """With their numbers."""
        return ((n, operation) for n, operation in enumerate(self.operations) if isinstance(operation, Publish))

    def write(self, path: Path) -> None:
        """One JSON line for each subscription, then one for each operation."""
        with path.open("wb") as file:
            for line in (*self.subscriptions, *self.operations):
                file.write(_encode(line) + b"\n")

    @classmethod
    def read(cls, path: Path) -> "History":
        """What `write` wrote.  Raises msgspec.DecodeError."""
        history = cls()
        with path.open("rb") as file:
            for line in map(_decode, file):
                if isinstance(line, Subscription):
                    history.subscriptions.append(line)
                else:
                    history.operations.append(line)
        return history
