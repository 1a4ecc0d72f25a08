"""Makes the acks and nacks that applications have written in their transactions (J7).

They are made first and deleted from the outbox afterwards.  A process that is killed in between makes them again,
which does no harm.  An ack after the ack deadline has no effect, and its message is redelivered.
"""

import logging
from collections.abc import Sequence
from itertools import groupby

from broker.core.acking.ack_batch import NewDeadline
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.features.outbox.rows import OutboxAcks, Outcome, take_acks
from broker.model.ack_id import group_ack_ids
from broker.model.dead_letter import NACK
from broker.model.errors import Aborted, BrokerError, NotFound, Unavailable
from broker.model.journal import Attribution, Author
from broker.model.names import project_of
from broker.model.subscription import Subscription
from broker.observability.log import reason
from broker.observability.metrics.families import OUTBOX_DONE, OUTBOX_REFUSED


class OutboxAcknowledger:
    """The acknowledger of a process."""

    def __init__(self, core: Core, coalescer: AckCoalescer) -> None:
        self._database = core.database
        self._resources = core.resources
        self._coalescer = coalescer
        self._states = core.states
        self._counts = core.counters.process

    async def relay(self, found: Sequence[OutboxAcks]) -> Outcome:
        """Make acks and nacks of one subscription, in the order of their numbers.

        Raises Unavailable, Aborted; what is not made is found again then.
        """
        name, subscription_id = found[0].subscription, found[0].subscription_id
        try:
            subscription = await self._resources.subscription_meant(name, subscription_id)
        except NotFound:
            self._refused(found, "it was deleted")
        else:
            for (is_nack, role), some in groupby(found, lambda each: (each.is_nack, each.role)):
                await self._settle(subscription, list(some), is_nack=is_nack, role=role)
        async with self._database.hot() as connection:
            await take_acks(connection, ns=[each.n for each in found])
        return Outcome.DONE

    async def _settle(
        self, subscription: Subscription, found: Sequence[OutboxAcks], *, is_nack: bool, role: str
    ) -> None:
        ack_ids = [ack_id for each in found for ack_id in each.ack_ids]
        try:
            await self._made(subscription, ack_ids, is_nack=is_nack, author=Author(client=f"SQL, as {role}"))
        except (Unavailable, Aborted):
            raise
        except BrokerError as error:
            if len(found) == 1:
                self._refused(found, reason(error))
                return
            for each in found:
                await self._settle(subscription, [each], is_nack=is_nack, role=role)
            return
        self._counts[OUTBOX_DONE["nack" if is_nack else "ack"]] += len(ack_ids)

    async def _made(
        self, subscription: Subscription, ack_ids: Sequence[str], *, is_nack: bool, author: Author
    ) -> None:
        grouped = group_ack_ids(ack_ids, subscription_id=subscription.subscription_id)
        messages, _ = await self._resources.in_known_shards(subscription, grouped)
        project, exactly_once = project_of(subscription.name), subscription.enable_exactly_once_delivery
        attribution = Attribution(subscription.journal, author)
        if is_nack:
            journaled = None if attribution.journal is None else attribution
            deadline = NewDeadline(0, "nacked", subscription.retry_policy, exactly_once, NACK, journaled)
            await self._coalescer.modify_ack_deadline(messages, deadline, project=project)
        else:
            await self._coalescer.acknowledge(
                messages, project=project, exactly_once=exactly_once, attribution=attribution
            )

    def _refused(self, found: Sequence[OutboxAcks], why: str) -> None:
        """Drops acks that name no outstanding message: nobody can repair them.

        Their messages are delivered again, if there are any.
        """
        self._counts[OUTBOX_REFUSED["ack"]] += sum(len(each.ack_ids) for each in found)
        name = found[0].subscription
        what = f"acknowledgements of transactions for {name} are dropped"
        self._states.happens("staged acknowledgements", name, what, why, level=logging.WARNING)
