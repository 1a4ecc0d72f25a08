"""Acknowledge and ModifyAckDeadline (A7)."""

from collections.abc import Sequence

from broker.domain.ack_id import group_ack_ids
from broker.domain.errors import InvalidArgument
from broker.runtime.ack_coalescer import AckCoalescer, NewDeadline
from broker.runtime.resource_cache import ResourceCache

MAX_ACK_DEADLINE_SECONDS = 600  # Google's limit


class AcknowledgeService:
    """Subscriber.Acknowledge and Subscriber.ModifyAckDeadline."""

    def __init__(self, resources: ResourceCache, coalescer: AckCoalescer) -> None:
        self._resources = resources
        self._coalescer = coalescer

    async def acknowledge(self, subscription_name: str, ack_ids: Sequence[str]) -> None:
        """Acknowledge messages, durably.  Ids that are stale are ignored.

        Raises NotFound, InvalidArgument (no id, or one that this subscription never had: nothing is acked then).
        """
        subscription = await self._resources.subscription(subscription_name)
        _require(ack_ids)
        await self._coalescer.acknowledge(group_ack_ids(ack_ids, subscription_id=subscription.subscription_id))

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
        await self._coalescer.modify_ack_deadline(
            messages, NewDeadline(ack_deadline_seconds, subscription.retry_policy)
        )


def _require(ack_ids: Sequence[str]) -> None:
    if not ack_ids:
        raise InvalidArgument("You have not specified an ack ID in the request.")
