"""Acknowledge and ModifyAckDeadline (A7), and two extensions of nacks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from broker.core.acking.ack_batch import NewDeadline, RefusedAcks
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.model.ack_id import AttemptName, group_ack_ids, make_ack_ids
from broker.model.dead_letter import NACK, REJECT
from broker.model.deadline_change import AttemptStatus
from broker.model.errors import FailedPrecondition, InvalidArgument, Unavailable
from broker.model.journal import NOBODY, Attribution, Author
from broker.model.names import leaf, project_of
from broker.model.resource_limits import check_nack_delay, check_new_ack_deadline
from broker.model.retry_policy import RetryPolicy
from broker.model.subscription import Subscription
from broker.observability.timing import timed


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The outcome of acks or deadlines with exactly-once delivery; each ack id is in one of the lists."""

    done: Sequence[str] = ()
    invalid: Sequence[str] = ()
    unordered: Sequence[str] = ()
    temporary_failed: Sequence[str] = ()


class AcknowledgeService:
    """Subscriber.Acknowledge and Subscriber.ModifyAckDeadline."""

    def __init__(self, core: Core, coalescer: AckCoalescer, activity: SubscriptionActivity) -> None:
        self._resources = core.resources
        self._admission = core.admission
        self._coalescer = coalescer
        self._activity = activity

    async def acknowledge(
        self, subscription_name: str, ack_ids: Sequence[str], principal: str = "", client: str = ""
    ) -> None:
        """Acknowledge messages, durably.  Ids that are stale are ignored, or refused with exactly-once delivery.

        Here and below, `principal` is who calls ("": it is not known); ResourceExhausted is raised for its quotas.
        `client`: by which API and from where, for the record of deliveries.

        Raises NotFound, InvalidArgument (no id, or one that this subscription never had: nothing is acked then; or
        stale ids with exactly-once delivery, named in the details: the others are acked).
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        if self._admission.is_metered:
            await self._count(subscription, principal)
        refused = await self._acknowledge(subscription, ack_ids, Author(principal, client))
        if refused:
            raise _refused(refused)

    async def acknowledge_on_stream(
        self, subscription_name: str, ack_ids: Sequence[str], author: Author = NOBODY
    ) -> Confirmation | None:
        """Acknowledges messages of a stream, and reports the outcome only with exactly-once delivery.

        Here and below, the journal names `author`.  Raises NotFound, InvalidArgument for an id that this
        subscription never had, and without exactly-once delivery Unavailable.
        """
        subscription = await self._resources.subscription(subscription_name)
        try:
            refused = await self._acknowledge(subscription, ack_ids, author)
        except Unavailable:
            if subscription.enable_exactly_once_delivery:
                return Confirmation(temporary_failed=ack_ids)
            raise
        return _confirmation(ack_ids, refused) if subscription.enable_exactly_once_delivery else None

    async def _acknowledge(self, subscription: Subscription, ack_ids: Sequence[str], author: Author) -> RefusedAcks:
        messages: Mapping[AttemptName, set[int]] = group_ack_ids(
            ack_ids, subscription_id=subscription.subscription_id
        )
        with timed("database"):
            messages, stale = await self._resources.in_known_shards(subscription, messages)
            refused = await self._coalescer.acknowledge(
                messages,
                project=project_of(subscription.name),
                exactly_once=subscription.enable_exactly_once_delivery,
                attribution=Attribution(subscription.journal, author),
            )
        if not stale or not subscription.enable_exactly_once_delivery:
            return refused
        return RefusedAcks({**refused.stale, **stale}, refused.out_of_order)

    async def modify_ack_deadline(
        self, subscription_name: str, ack_ids: Sequence[str], ack_deadline_seconds: int, principal: str = ""
    ) -> None:
        """Move the ack deadline to so many seconds from now (0 to 600); 0 is a nack.

        Raises NotFound, InvalidArgument.
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        check_new_ack_deadline(ack_deadline_seconds)
        if self._admission.is_metered:
            await self._count(subscription, principal)
        stale = await self._modify(subscription, ack_ids, ack_deadline_seconds, Author(principal))
        if stale and subscription.enable_exactly_once_delivery:
            raise _refused(RefusedAcks(stale=stale))

    async def modify_ack_deadlines_on_stream(
        self,
        subscription_name: str,
        ack_ids: Sequence[str],
        ack_deadlines: Sequence[int],
        author: Author = NOBODY,
    ) -> Confirmation | None:
        """Modifies deadlines as `modify_ack_deadline` does, each message's to its own.

        Reports and raises as `acknowledge_on_stream` does.
        """
        subscription = await self._resources.subscription(subscription_name)
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(ack_ids, ack_deadlines, strict=True):
            check_new_ack_deadline(seconds)
            by_seconds.setdefault(seconds, []).append(ack_id)
        group_ack_ids(ack_ids, subscription_id=subscription.subscription_id)  # checks all before any change
        changes = [self._modify(subscription, ids, seconds, author) for seconds, ids in by_seconds.items()]
        try:
            stale = await asyncio.gather(*changes)
        except Unavailable:
            if subscription.enable_exactly_once_delivery:
                return Confirmation(temporary_failed=ack_ids)
            raise
        if not subscription.enable_exactly_once_delivery:
            return None
        return _confirmation(ack_ids, *(RefusedAcks(stale=messages) for messages in stale))

    async def _modify(
        self, subscription: Subscription, ack_ids: Sequence[str], seconds: int, author: Author
    ) -> Mapping[AttemptName, set[int]]:
        if seconds:
            deadline = self._deadline(subscription, author, seconds)
        else:
            deadline = self._deadline(subscription, author, 0, "nacked", NACK, subscription.retry_policy)
        return await self._change(subscription, ack_ids, deadline)

    async def nack(
        self, subscription_name: str, ack_ids: Sequence[str], delay: timedelta | None, principal: str = ""
    ) -> None:
        """Nacks messages with a delay of their own (0 to 24 h; None: as the retry policy says).  An extension (A4).

        Raises NotFound, InvalidArgument.
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        if delay is not None:
            check_nack_delay(delay)
        if self._admission.is_metered:
            await self._count(subscription, principal)
        seconds = 0 if delay is None else delay.total_seconds()
        retry_policy = subscription.retry_policy if delay is None else None
        deadline = self._deadline(subscription, Author(principal), seconds, "nacked", NACK, retry_policy)
        stale = await self._change(subscription, ack_ids, deadline)
        if stale and subscription.enable_exactly_once_delivery:
            raise _refused(RefusedAcks(stale=stale))

    async def reject(self, subscription_name: str, ack_ids: Sequence[str], principal: str = "") -> None:
        """Give messages up: they go to the dead-letter topic however often they were tried.  An extension (A5).

        Raises NotFound, InvalidArgument, and FailedPrecondition: there is no dead-letter topic; or some messages
        are not out under these ack ids any more, or wait for earlier ones of their ordering key (the others are
        given up).
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        if subscription.max_delivery_attempts is None:
            raise FailedPrecondition(
                "Messages can be rejected only by a subscription with a dead-letter topic that exists "
                f"(resource={leaf(subscription_name)})."
            )
        if self._admission.is_metered:
            await self._count(subscription, principal)
        deadline = self._deadline(subscription, Author(principal), 0, "exhausted", REJECT)
        failed = await self._change(subscription, ack_ids, deadline)
        if failed:
            count = sum(map(len, failed.values()))
            raise FailedPrecondition(
                f"{count} of {len(ack_ids)} messages were not rejected: they are not out under these ack ids "
                f"any more, or earlier messages of their ordering key are (ack_id={next(_ack_ids(failed))})."
            )

    async def _count(self, subscription: Subscription, principal: str) -> None:
        """Counts a request, if anything is limited.  Raises QuotaExceeded."""
        project = project_of(subscription.name)
        gauge = self._admission.subscribing(project, principal)
        gauge.take(await self._admission.check(gauge, project, requests_alone=True), requests=1)

    @staticmethod
    def _deadline(
        subscription: Subscription,
        author: Author,
        seconds: float,
        status: AttemptStatus = "delivering",
        failure: str | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> NewDeadline:
        return NewDeadline(
            seconds,
            status,
            retry_policy,
            subscription.enable_exactly_once_delivery,
            failure,
            _attribution(subscription, author),
        )

    async def _change(
        self, subscription: Subscription, ack_ids: Sequence[str], deadline: NewDeadline
    ) -> Mapping[AttemptName, set[int]]:
        messages: Mapping[AttemptName, set[int]] = group_ack_ids(
            ack_ids, subscription_id=subscription.subscription_id
        )
        self._activity.used(subscription.subscription_id)
        project = project_of(subscription.name)
        with timed("database"):
            messages, stale = await self._resources.in_known_shards(subscription, messages)
            return {**await self._coalescer.modify_ack_deadline(messages, deadline, project=project), **stale}


def _attribution(subscription: Subscription, author: Author) -> Attribution | None:
    journal = subscription.journal
    return None if journal is None else Attribution(journal, author)


def _refused(refused: RefusedAcks) -> InvalidArgument:
    """Returns the error that official clients read: its detail names each failed ack id and whether to retry it."""
    failures = dict.fromkeys(_ack_ids(refused.stale), "PERMANENT_FAILURE_INVALID_ACK_ID")
    failures |= dict.fromkeys(_ack_ids(refused.out_of_order), "TRANSIENT_FAILURE_UNORDERED_ACK_ID")
    return InvalidArgument(
        "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have "
        "expired or the acknowledgement ids were malformed.",
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "EXACTLY_ONCE_ACKID_FAILURE",
                "domain": "pubsub.googleapis.com",
                "metadata": failures,
            }
        ],
    )


def _confirmation(ack_ids: Sequence[str], *refused: RefusedAcks) -> Confirmation:
    invalid = [ack_id for part in refused for ack_id in _ack_ids(part.stale)]
    unordered = [ack_id for part in refused for ack_id in _ack_ids(part.out_of_order)]
    failed = {*invalid, *unordered}
    return Confirmation([ack_id for ack_id in ack_ids if ack_id not in failed], invalid, unordered)


def _ack_ids(messages: Mapping[AttemptName, set[int]]) -> Iterator[str]:
    for attempt, ordinals in messages.items():
        yield from make_ack_ids(attempt, sorted(ordinals))


def _require(ack_ids: Sequence[str]) -> None:
    if not ack_ids:
        raise InvalidArgument("You have not specified an ack ID in the request.")
