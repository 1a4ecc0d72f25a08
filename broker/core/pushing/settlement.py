"""Writes the outcomes of pushed messages in batches: acks, nacks, and releases of messages that were not sent."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.core.acking.ack_batch import NewDeadline
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.pushing.endpoint import Endpoint, Item
from broker.core.pushing.health.fault import MessagePause
from broker.fairness.shared_capacity import ALPHA
from broker.model.ack_id import AttemptName
from broker.model.errors import BrokerError, Unavailable
from broker.model.failure_cause import FailureCause, normalised_response
from broker.model.journal import PUSH, Attribution

_AWAY_SECONDS = 0.5  # after which acks that could not be written are written again
_MAX_KEPT = 100_000  # attempts whose acks wait for the database; further ones are delivered again

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Outcomes:
    """The outcomes to write for the endpoints of a project, in one shard; acks by their attribution."""

    acks: dict[Attribution, dict[AttemptName, set[int]]] = field(default_factory=dict)
    deadlines: dict[NewDeadline, dict[AttemptName, set[int]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.acks or self.deadlines)

    def take(self) -> "_Outcomes":
        """Returns the outcomes, and leaves none."""
        taken = _Outcomes(self.acks, self.deadlines)
        self.acks, self.deadlines = {}, {}
        return taken


class Settlement:
    """Filled by the senders.  Each project has a task for each shard with something to write; what comes meanwhile
    goes next.  Endpoints in doubt, of all projects, count as one project.

    While the database is away acks are kept: what an endpoint took it should not get again.  What else cannot be
    written falls due by itself and is delivered again.
    """

    def __init__(self, coalescer: AckCoalescer) -> None:
        self._coalescer = coalescer
        self._outcomes: dict[tuple[str, int], _Outcomes] = {}  # by project and shard: being written
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    def acknowledge(self, endpoint: Endpoint, items: Iterable[Item], answer: str = "") -> None:
        """Acknowledges delivered messages.

        `answer`: the endpoint's answer, for the record of deliveries and the journal.
        """
        attribution = Attribution(endpoint.subscription.journal, PUSH, answer)
        for item in items:
            acks = self._of(endpoint.payer, item.name.shard_id).acks.setdefault(attribution, {})
            acks.setdefault(item.name, set()).add(item.ordinal)

    def nack(
        self, endpoint: Endpoint, items: Iterable[Item], failure: str, pause: MessagePause, *, response: str = ""
    ) -> None:
        """Nacks messages that were rejected, or not answered in time:

        `failure` says which (model/dead_letter.py).  Messages that become dead letters by it keep the endpoint's
        `response`, normalised.
        """
        policy = pause.policy(endpoint.subscription.retry_policy)
        attribution = _attribution(endpoint)
        for cause, of_cause in _by_cause(endpoint, items, failure, response).items():
            deadline = NewDeadline(pause.seconds, "nacked", policy, failure=cause, attribution=attribution)
            self._add(endpoint, of_cause, deadline)

    def release(self, endpoint: Endpoint, items: Iterable[Item]) -> None:
        """Releases messages that were not sent: they are due at once, and the attempt is not counted."""
        self._add(endpoint, items, NewDeadline(0, "released", attribution=_attribution(endpoint)))

    def _add(self, endpoint: Endpoint, items: Iterable[Item], deadline: NewDeadline) -> None:
        for item in items:
            deadlines = self._of(endpoint.payer, item.name.shard_id).deadlines
            deadlines.setdefault(deadline, {}).setdefault(item.name, set()).add(item.ordinal)

    async def close(self) -> None:
        """Write what there is, once, and wait for what is being written.  Nothing may be added any more."""
        self._closing.set()
        await asyncio.gather(*self._tasks)

    def _of(self, project: str, shard_id: int) -> _Outcomes:
        """Returns the outcomes of a project in a shard, which a task writes soon."""
        where = project, shard_id
        outcomes = self._outcomes.get(where)
        if outcomes is None:
            outcomes = self._outcomes[where] = _Outcomes()
            task = asyncio.create_task(self._write(where, outcomes), name=f"write results of pushes of {project}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return outcomes

    async def _write(self, where: tuple[str, int], outcomes: _Outcomes) -> None:
        project, _ = where
        try:
            while outcomes:
                closing = self._closing.is_set()
                if not await self._flush(project, outcomes):
                    if closing:
                        return
                    await self._pause()
        finally:
            del self._outcomes[where]

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_AWAY_SECONDS):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _flush(self, project: str, outcomes: _Outcomes) -> bool:
        """Write what there is.  Returns whether the database took it."""
        taken = outcomes.take()
        ended = await asyncio.gather(
            *(
                self._coalescer.acknowledge(acks, project=project, attribution=attribution)
                for attribution, acks in taken.acks.items()
            ),
            *(
                self._coalescer.modify_ack_deadline(messages, new, project=project)
                for new, messages in taken.deadlines.items()
            ),
            return_exceptions=True,
        )
        for (attribution, acks), outcome in zip(
            taken.acks.items(), ended, strict=False
        ):  # the changes of deadlines follow
            if isinstance(outcome, Unavailable):
                self._take_back(project, outcomes.acks.setdefault(attribution, {}), acks)
        for outcome in ended:
            if isinstance(outcome, BaseException) and not isinstance(outcome, BrokerError):
                raise outcome
        failed = next((outcome for outcome in ended if isinstance(outcome, BrokerError)), None)
        if failed is not None:
            logger.debug("results of pushes were not written: %s", failed)
        return failed is None

    def _take_back(
        self, project: str, kept: dict[AttemptName, set[int]], acks: dict[AttemptName, set[int]]
    ) -> None:
        """Keeps as many acks as there is room for, which projects share (fairness/shared_capacity.py)."""
        held = [(project, sum(map(len, each.acks.values()))) for (project, _), each in self._outcomes.items()]
        own = sum(number for of_project, number in held if of_project == project)
        free = _MAX_KEPT - sum(number for _, number in held)
        for name, ordinals in acks.items():
            if name not in kept:
                if own >= ALPHA * free:
                    continue
                own, free = own + 1, free - 1
            kept.setdefault(name, set()).update(ordinals)


def _by_cause(
    endpoint: Endpoint, items: Iterable[Item], failure: str, response: str
) -> Mapping[str, Sequence[Item]]:
    """Returns failed messages by what the column `failure` gets.

    Only the last attempt tells the response: parts of a delivery attempt whose failures differ are not merged.
    """
    policy = endpoint.subscription.dead_letter_policy
    items = list(items)
    last = [item for item in items if policy is not None and item.attempt_number >= policy.max_delivery_attempts]
    if not response or not last:
        return {failure: items}
    others = [item for item in items if item not in last]
    cause = FailureCause(failure, normalised_response(response)).stored
    return {cause: last} | ({failure: others} if others else {})


def _attribution(endpoint: Endpoint) -> Attribution | None:
    journal = endpoint.subscription.journal
    return None if journal is None else Attribution(journal, PUSH)
