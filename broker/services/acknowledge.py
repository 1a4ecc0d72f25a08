"""Acknowledge and ModifyAckDeadline (A7)."""

from collections.abc import Iterator, Mapping, Sequence

from broker.domain.ack_id import AttemptName, group_ack_ids, make_ack_ids
from broker.domain.errors import InvalidArgument
from broker.runtime.ack_coalescer import AckCoalescer, NewDeadline, RefusedAcks
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.subscription_activity import SubscriptionActivity

MAX_ACK_DEADLINE_SECONDS = 600  # Google's limit


class AcknowledgeService:
    """Subscriber.Acknowledge and Subscriber.ModifyAckDeadline."""

    def __init__(self, resources: ResourceCache, coalescer: AckCoalescer, activity: SubscriptionActivity) -> None:
        self._resources = resources
        self._coalescer = coalescer
        self._activity = activity

    async def acknowledge(self, subscription_name: str, ack_ids: Sequence[str]) -> None:
        """Acknowledge messages, durably.  Ids that are stale are ignored, or refused with exactly-once delivery.

        Raises NotFound, InvalidArgument (no id, or one that this subscription never had: nothing is acked then; or
        stale ids with exactly-once delivery, named in the details: the others are acked).
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        refused = await self._coalescer.acknowledge(
            group_ack_ids(ack_ids, subscription_id=subscription.subscription_id),
            exactly_once=subscription.enable_exactly_once_delivery,
        )
        if refused:
            raise _refused(refused)

    async def modify_ack_deadline(
        self, subscription_name: str, ack_ids: Sequence[str], ack_deadline_seconds: int
    ) -> None:
        """Move the ack deadline to so many seconds from now (0 to 600); 0 is a nack.

        Raises NotFound, InvalidArgument.
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        if not 0 <= ack_deadline_seconds <= MAX_ACK_DEADLINE_SECONDS:
            raise InvalidArgument(
                f"Invalid ack deadline given (ack_deadline={ack_deadline_seconds}). "
                f"The ack deadline must be between 0 and {MAX_ACK_DEADLINE_SECONDS} seconds."
            )
        messages = group_ack_ids(ack_ids, subscription_id=subscription.subscription_id)
        self._activity.used(subscription.subscription_id)
        exactly_once = subscription.enable_exactly_once_delivery
        stale = await self._coalescer.modify_ack_deadline(
            messages, NewDeadline(ack_deadline_seconds, subscription.retry_policy, exactly_once)
        )
        if stale and exactly_once:
            raise _refused(RefusedAcks(stale=stale))


def _refused(refused: RefusedAcks) -> InvalidArgument:
    """What official clients read: the detail names each id that failed, and whether to try it again."""
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


def _ack_ids(messages: Mapping[AttemptName, set[int]]) -> Iterator[str]:
    for attempt, positions in messages.items():
        yield from make_ack_ids(attempt, sorted(positions))


def _require(ack_ids: Sequence[str]) -> None:
    if not ack_ids:
        raise InvalidArgument("You have not specified an ack ID in the request.")
