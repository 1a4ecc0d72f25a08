"""The waiting pulls of one subscription, in the order in which they are served: a consumer of claims.

joined ──a claim has messages──► answered
   │ every shard was checked since then, without messages
   ├──it does not wait──► answered without messages
   ▼
parked ──a claim has messages──► answered
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.claiming.consumer import Answer, claim_target
from broker.core.claiming.transaction.request import ClaimTarget, Gone, More, Quiet
from broker.core.pulling.key_owners import KeyOwners
from broker.fairness.slow_readers import slow_readers
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, DeliveryRequest
from broker.model.names import project_of
from broker.model.subscription import Subscription

MAX_CLAIM_MESSAGES = 4_000  # messages that one claim serves at most; further pulls wait for the next claim
MAX_CLAIM_PULLS = 250  # pulls that it serves: with thousands each step of a claim blocks the event loop
MAX_CLAIM_BYTES = 64_000_000  # that the pulls of a claim share, unless a single message is larger
MAX_CLAIMS = 20  # of a pull, after which it ends although more could be claimed


class SubscriptionChanged(Exception):
    """The subscription was changed or deleted while the pull waited: read it again."""


@dataclass(eq=False, slots=True)
class PullTerms:
    """`ack_deadline` None: the subscription's; it may change while the pull waits.  `owner` gets the ordering keys
    that it had before rather than others (A6).
    """

    ack_deadline: timedelta | None = None
    owner: Hashable | None = None


PLAIN_TERMS = PullTerms()


@dataclass(eq=False, slots=True)
class WaitingPull:
    """A pull that stands in a queue.

    `wait`: it is answered only once there are messages.  `answer` is set when the pull leaves the queue: with its
    deliveries, with none, or with an error.  `parked` is set when no shard had a message for it; it stays in the
    queue then.  `unseen`: the shards that no claim has looked at since it joined.  `joined`: the number of claims
    that the queue had begun then.  `replica_reads`: how many claims gave it nothing although there was more.
    `left`: its caller takes what is being claimed, and waits for no more.
    """

    request: DeliveryRequest
    wait: bool
    answer: asyncio.Future[list[Delivery]]
    parked: asyncio.Future[None]
    terms: PullTerms = PLAIN_TERMS
    unseen: set[int] = field(default_factory=set)
    joined: int = 0
    claims: int = 0
    left: bool = False

    def fail(self, error: BaseException) -> None:
        """Fails the pull, unless it is answered already."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # its caller may be gone


class Line:
    """Pulls in the order in which they are served.  Any may leave, at the same cost: thousands do so together."""

    def __init__(self, pulls: Iterable[WaitingPull] = ()) -> None:
        self._pulls = OrderedDict[WaitingPull, None].fromkeys(pulls)

    def __len__(self) -> int:
        return len(self._pulls)

    def __iter__(self) -> Iterator[WaitingPull]:
        return iter(self._pulls)

    def __reversed__(self) -> Iterator[WaitingPull]:
        return reversed(self._pulls)

    @property
    def first(self) -> WaitingPull:
        return next(iter(self._pulls))

    def append(self, pull: WaitingPull) -> None:
        self._pulls[pull] = None

    def put_back(self, pulls: Sequence[WaitingPull]) -> None:
        """Puts pulls back before all others, in this order."""
        for pull in reversed(pulls):
            self._pulls[pull] = None
            self._pulls.move_to_end(pull, last=False)

    def popleft(self) -> WaitingPull:
        return self._pulls.popitem(last=False)[0]

    def leave(self, pull: WaitingPull) -> bool:
        """Returns whether it stood here."""
        if pull in self._pulls:
            del self._pulls[pull]
            return True
        return False


class PullQueue:
    """The waiting pulls of one subscription.  One claim at a time is made for it, for the pulls in `serving`."""

    in_doubt = False

    def __init__(
        self,
        subscription: Subscription,
        key_owners: KeyOwners,
        *,
        has_capacity: Callable[[str], bool],
        idle: Callable[["PullQueue"], None],
    ) -> None:
        """`has_capacity(name)`: whether more answers may be made of a subscription.

        `idle(queue)` is called when no pull is left.
        """
        self.subscription = subscription
        self.pulls = Line()
        self.serving: list[WaitingPull] = []
        self._key_owners = key_owners
        self._has_capacity = has_capacity
        self._idle = idle
        self._claims = 0  # begun so far
        self._changed = False  # since the current claim began
        self._stopping = False

    def join(self, pull: WaitingPull) -> None:
        """Adds a pull at the end.  The caller then wakes the scheduler."""
        pull.joined = self._claims
        pull.unseen = set(self.subscription.shard_ids)
        self.pulls.append(pull)

    def give_up(self, pull: WaitingPull) -> bool:
        """Returns whether the pull stood in the line; else it is claimed for already, or answered."""
        if self.pulls.leave(pull):
            self._notify_if_idle()
            return True
        return False

    def leave(self, pull: WaitingPull) -> bool:
        """Gives a pull up as `give_up` does; a pull that is being claimed for waits for no other claim."""
        pull.left = True
        return self.give_up(pull)

    def change(self) -> None:
        """Send everybody to read the subscription again."""
        self._changed = True
        self._send_away(SubscriptionChanged())

    def stop(self) -> None:
        """Answers all pulls with no messages; those that are being claimed for, unless they get some."""
        self._stopping = True
        while self.pulls:
            pull = self.pulls.popleft()
            if not pull.answer.done():
                pull.answer.set_result([])
        self._notify_if_idle()

    # --- a consumer of claims --------------------------------------------------------------------------------

    def wants(self) -> bool:
        return bool(self.pulls) and not self.serving and self.subscription.pause is None

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        """Begins a claim for as many pulls as one claim serves.

        It always includes redeliveries: another process may have delivered them.
        """
        if not self.wants():
            return None
        self._claims += 1
        self._changed = False
        self.serving = take(self.pulls)
        if not self._has_capacity(self.subscription.name):
            raise slow_readers(project_of(self.subscription.name))
        subscription = self.subscription
        owners = [pull.terms.owner for pull in self.serving]
        ack_deadline = self.serving[0].terms.ack_deadline  # the same for all of them
        if ack_deadline is None:
            ack_deadline = timedelta(seconds=subscription.ack_deadline_seconds)
        return claim_target(
            subscription,
            now,
            requests=requests_of(self.serving),
            ack_deadline=ack_deadline,
            exactly_once=subscription.enable_exactly_once_delivery,
            max_run=1 if subscription.extensions.one_per_ordering_key else MAX_MESSAGES_PER_ATTEMPT,
            preferred=self._key_owners.preferred(subscription.subscription_id, owners),
        )

    def accept(self, answer: Answer) -> None:
        served, self.serving = self.serving, []
        rest = answer.claimed.rest
        hungry = []
        for pull, deliveries in zip(served, answer.claimed.deliveries, strict=True):
            if deliveries:
                if pull.terms.owner is not None:
                    self._key_owners.note(self.subscription.subscription_id, pull.terms.owner, deliveries)
                pull.answer.set_result(list(deliveries))
            else:
                hungry.append(pull)
        if isinstance(rest, Gone):
            for pull in hungry:
                pull.fail(SubscriptionChanged())
            self._send_away(SubscriptionChanged())
            return
        if hungry:
            self._put_back(hungry, answer)
        self._notify_if_idle()

    def fail(self, target: ClaimTarget | None, error: BaseException) -> None:
        """End those that it was claimed for, and those that stand behind them."""
        served, self.serving = self.serving, []
        for pull in served:
            pull.fail(error)
        self._send_away(error)

    def wakes_at(self, *, held_up: bool) -> float | None:
        return None

    def woken(self) -> None:
        """Does nothing: the scheduler looks for due messages."""

    # --- those who got nothing -------------------------------------------------------------------------------

    def _put_back(self, hungry: Sequence[WaitingPull], answer: Answer) -> None:
        """Puts pulls back in front.

        If nothing is left, pulls behind them that joined before the claim leave too.
        """
        seen = isinstance(answer.claimed.rest, Quiet)
        behind: list[WaitingPull] = []
        for pull in reversed(self.pulls) if seen else ():
            if pull.parked.done():
                break
            if pull.joined < self._claims:
                behind.append(pull)
        for pull in behind:
            if not self._goes_on(pull, answer.shard_id, seen=True):
                self.pulls.leave(pull)
        if isinstance(answer.claimed.rest, More):
            for pull in hungry:
                pull.claims += 1
        self.pulls.put_back(
            [
                pull
                for pull in hungry
                if self._goes_on(pull, answer.shard_id, seen=seen or pull.claims >= MAX_CLAIMS)
            ]
        )

    def _goes_on(self, pull: WaitingPull, shard_id: int, *, seen: bool) -> bool:
        """Returns whether a pull goes on waiting; else it is answered.  Parks it once all shards were checked."""
        if pull.left or self._stopping:
            pull.answer.set_result([])
            return False
        if pull.wait and self._changed:
            pull.fail(SubscriptionChanged())
            return False
        if seen:
            pull.unseen.discard(shard_id)
        if pull.unseen:
            return True
        if not pull.wait:
            pull.answer.set_result([])
        elif not pull.parked.done():
            pull.parked.set_result(None)
        return pull.wait

    def _send_away(self, reason: BaseException) -> None:
        while self.pulls:
            self.pulls.popleft().fail(reason)
        self._notify_if_idle()

    def _notify_if_idle(self) -> None:
        if not self.pulls and not self.serving:
            self._idle(self)


def take(waiting: Line) -> list[WaitingPull]:
    """The first that wait and have one ack deadline, as many as one claim serves.

    Those who share evenly ask for no more than leaves something for every other that waits.
    """
    part = max(1, MAX_CLAIM_MESSAGES // len(waiting))
    taken: list[WaitingPull] = []
    messages = 0
    ack_deadline = waiting.first.terms.ack_deadline
    while waiting and len(taken) < MAX_CLAIM_PULLS and waiting.first.terms.ack_deadline == ack_deadline:
        request = waiting.first.request
        messages += min(request.max_messages, part) if request.evenly else request.max_messages
        if taken and messages > MAX_CLAIM_MESSAGES:
            break
        taken.append(waiting.popleft())
    return taken


def requests_of(pulls: Sequence[WaitingPull]) -> list[DeliveryRequest]:
    """Divides one claim among pulls so that all get something.

    They get equal parts of the bytes, and pulls that share evenly get equal parts of the messages.
    """
    max_bytes = MAX_CLAIM_BYTES // len(pulls)
    part = max(1, MAX_CLAIM_MESSAGES // len(pulls))
    return [pull.request.within(part if pull.request.evenly else None, max_bytes) for pull in pulls]
