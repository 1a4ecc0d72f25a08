"""Applies a subscription's transforms to claimed messages, before they are delivered.

    kept ──► delivered          dropped ──► acknowledged          failed ──► nacked: delivered again after a while
    not done in time, or the result is too large ──► released: due at once, the attempt not counted

No message of an ordering key is delivered after one that failed or was released.  With exactly-once delivery a
dropped message waits until those before it are acknowledged, because acks must be in order.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace

from broker.core.acking.ack_batch import NewDeadline
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.claiming.consumer import Answer
from broker.core.claiming.transaction.request import ClaimTarget
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.features.transforms.sandboxes import Sandboxes
from broker.features.transforms.topic_transforms import Programs
from broker.model.ack_id import AttemptName, attempt_name
from broker.model.dead_letter import TRANSFORM
from broker.model.delivery import Delivery, StoredMessage
from broker.model.errors import BrokerError
from broker.model.journal import TRANSFORM as BY_TRANSFORM
from broker.model.journal import Attribution
from broker.model.message_id import id_of
from broker.model.names import project_of
from broker.model.retry_policy import RetryPolicy
from broker.model.subscription import Subscription
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import TRANSFORM_DROPS, TRANSFORM_FAILURES
from broker.observability.state_changes import StateChanges

CLAIM_SECONDS = 3.0  # for what one claim brought, and no more than half of its ack deadline
# Where no retry policy says when: nobody's pulling slows down what fails here.
PAUSES = RetryPolicy(minimum_backoff=timedelta(seconds=1), maximum_backoff=timedelta(seconds=60))
_DROPPED = "a transform dropped it"
_MAX_REASONS, _MANY = 10, "a transform failed"  # told apart in a claim: each is a change of its own
_BUSY_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Endings:
    """The results to write, by attempt and ordinal; failures by their reasons.

    Released messages are due after `pause` seconds.
    """

    dropped: dict[AttemptName, set[int]] = field(default_factory=dict)
    released: dict[AttemptName, set[int]] = field(default_factory=dict)
    failed: dict[str, dict[AttemptName, set[int]]] = field(default_factory=dict)
    pause: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.dropped or self.released or self.failed)


class DeliveryTransforms:
    """The AnswerHook of a process."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        programs: Programs,
        acks: AckCoalescer,
        states: StateChanges,
        counters: Counters,
    ) -> None:
        self._sandboxes = sandboxes
        self._programs = programs
        self._acks = acks
        self._states = states
        self._counters = counters

    async def transformed(self, subscription: Subscription, answer: Answer) -> Answer:
        """Returns the messages to deliver from an answer, after the outcomes of the others were written."""
        if not subscription.transforms_messages:
            return answer
        kept = await self._transform(subscription, answer.target, answer.claimed.deliveries)
        return replace(answer, claimed=replace(answer.claimed, deliveries=kept), transformed=True)

    async def _transform(
        self, subscription: Subscription, target: ClaimTarget, deliveries: Sequence[Sequence[Delivery]]
    ) -> Sequence[Sequence[Delivery]]:
        messages = [
            _given(delivery.shard_id, message)
            for of_request in deliveries
            for delivery in of_request
            for message in delivery.messages
        ]
        program = self._programs.of(subscription.name, subscription.transforms)
        seconds = min(CLAIM_SECONDS, target.ack_deadline.total_seconds() / 2)
        try:
            outcomes: Sequence[Outcome] = await self._sandboxes.run(program, messages, seconds=seconds)
            endings = _Endings()
        except BrokerError as error:
            logger.debug("nothing was transformed for %s: %s", subscription.name, error)
            outcomes, endings = (), _Endings(pause=_BUSY_SECONDS)
        each = iter(outcomes)
        kept = [
            list(self._divide(subscription, of_request, request.max_bytes, each, endings))
            for of_request, request in zip(deliveries, target.requests, strict=True)
        ]
        if endings:
            await self._write(subscription, endings)
        return kept

    def _divide(
        self,
        subscription: Subscription,
        deliveries: Sequence[Delivery],
        bytes_left: int,
        outcomes: Iterator[Outcome],
        endings: _Endings,
    ) -> Iterator[Delivery]:
        """Yields the deliveries for one request, with the remaining ones of their messages."""
        has_some = False
        for delivery in deliveries:
            name = attempt_name(subscription.subscription_id, delivery)
            kept: dict[int, StoredMessage] = {}
            is_over = False  # nothing of it is handed out any more
            for ordinal, message in enumerate(delivery.messages):
                outcome = next(outcomes, None)
                if is_over:
                    continue
                made = _made(message, outcome)
                waits = outcome is None or (made is not None and has_some and made.size > bytes_left)
                if subscription.enable_exactly_once_delivery and delivery.ordered and kept:
                    waits = waits or made is None
                if waits:
                    endings.released.setdefault(name, set()).add(ordinal)
                elif made is not None:
                    kept[ordinal], has_some, bytes_left = made, True, bytes_left - made.size
                    continue
                elif outcome is not None and outcome.ending is Ending.DROPPED:
                    endings.dropped.setdefault(name, set()).add(ordinal)
                    continue
                elif outcome is not None:
                    reason = outcome.reason if len(endings.failed) < _MAX_REASONS else _MANY
                    endings.failed.setdefault(reason, {}).setdefault(name, set()).add(ordinal)
                is_over = delivery.ordered
            if kept:
                yield _with(delivery, kept)

    async def _write(self, subscription: Subscription, endings: _Endings) -> None:
        """Writes outcomes.  Messages whose outcome cannot be written fall due by themselves."""
        self._count(subscription, endings)
        project, strict = project_of(subscription.name), subscription.enable_exactly_once_delivery
        policy = subscription.retry_policy or PAUSES
        changes = [
            (
                messages,
                NewDeadline(0, "nacked", policy, failure=TRANSFORM, attribution=_attribution(subscription, reason)),
            )
            for reason, messages in endings.failed.items()
        ]
        if endings.released:
            changes.append(
                (
                    endings.released,
                    NewDeadline(endings.pause, "released", attribution=_attribution(subscription, "")),
                )
            )
        dropped = Attribution(subscription.journal, BY_TRANSFORM, _DROPPED)
        ended = await asyncio.gather(
            *(self._acks.modify_ack_deadline(messages, new, project=project) for messages, new in changes),
            *(
                [self._acks.acknowledge(endings.dropped, project=project, exactly_once=strict, attribution=dropped)]
                if endings.dropped
                else []
            ),
            return_exceptions=True,
        )
        for error in ended:
            if isinstance(error, BrokerError):
                logger.debug("what became of transformed messages was not written: %s", error)
            elif isinstance(error, BaseException):
                raise error

    def _count(self, subscription: Subscription, endings: _Endings) -> None:
        counts = self._counters.subscription(subscription.name)
        counts[TRANSFORM_DROPS] += sum(map(len, endings.dropped.values()))
        for reason, messages in endings.failed.items():
            counts[TRANSFORM_FAILURES] += sum(map(len, messages.values()))
            self._states.happens("transforms", subscription.name, f"transforms of {subscription.name} fail", reason)


def _given(shard_id: int, message: StoredMessage) -> Message:
    return Message(
        message.data,
        message.attributes,
        id_of(shard_id, message),
        f"{message.publish_time:%Y-%m-%dT%H:%M:%SZ}",
        message.ordering_key or "",
        int(message.publish_time.timestamp() * 1000),
    )


def _made(message: StoredMessage, outcome: Outcome | None) -> StoredMessage | None:
    if outcome is None or outcome.ending is not Ending.KEPT:
        return None
    return replace(message, attributes=outcome.attributes, data=outcome.data)


def _with(delivery: Delivery, kept: dict[int, StoredMessage]) -> Delivery:
    left_out = len(delivery.messages) - len(kept)
    return replace(
        delivery,
        messages=list(kept.values()),
        returned=delivery.returned + left_out,
        only=tuple(kept) if left_out else None,
    )


def _attribution(subscription: Subscription, answer: str) -> Attribution | None:
    journal = subscription.journal
    return None if journal is None else Attribution(journal, BY_TRANSFORM, answer)
