"""Resends messages to one subscription; an extension (G2)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.log.message_ids import located
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_transactions import in_hot_transaction
from broker.features.resend.resend import ResendOptions, check_resend
from broker.features.resend.rows import Id, Resend, resend
from broker.model.errors import FailedPrecondition, NotFound
from broker.model.journal import Author
from broker.model.message_id import parse_message_id
from broker.model.names import leaf
from broker.model.subscription import Subscription
from broker.observability.log import fields_of
from broker.observability.metrics.families import RESENT


class ResendService:
    """Resends messages.  Once a call is answered its messages may be claimed."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._states = core.states
        self._counters = core.counters

    async def resend(self, name: str, options: ResendOptions, *, by: str = "") -> Mapping[str, Outcome]:
        """Resends messages and returns the outcome of each.

        Raises InvalidArgument (the ids), NotFound (no subscription; a single message that does not exist),
        FailedPrecondition (detached; a single one that the filter does not match), Aborted (other transactions used
        the same messages again and again).
        """
        check_resend(options)
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
        if subscription.detached:
            raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
        given = list(dict.fromkeys(options.message_ids))
        async with self._database.hot() as hot:
            ids = await located(hot, [parse_message_id(text) for text in given])
        done = await self._done(subscription, list(dict.fromkeys(ids)), Author(principal=by))
        outcomes = {text: done[id_] for text, id_ in zip(given, ids, strict=True)}
        if options.one:
            _check_one(name, given[0], outcomes[given[0]])
        count = Counter(done.values())[Outcome.RESENT]
        if count:
            self._counters.subscription(name)[RESENT] += count
            who = f" by {by}" if by else ""
            self._states.report(
                "resends",
                f"{count:,} messages of {name} are resent{who}",
                fields=fields_of(name, principal=by, count=count),
            )
            self._wake_ups.redeliverable(subscription.subscription_id)
        return outcomes

    async def _done(self, subscription: Subscription, ids: Sequence[Id], author: Author) -> Mapping[Id, Outcome]:
        async def act(connection: HotConnection) -> Mapping[Id, Outcome]:
            asked = Resend(subscription=subscription, ids=ids, author=author, now=self._clock.now())
            return await resend(connection, asked, self._attempt_ids)

        return await in_hot_transaction(self._database, act)


def _check_one(name: str, message_id: str, outcome: Outcome) -> None:
    """Raises NotFound, FailedPrecondition."""
    where = f"(resource={leaf(name)}, messageId={message_id})"
    if outcome is Outcome.UNKNOWN:
        raise NotFound(f"There is no such message of the subscription's topic {where}.")
    if outcome is Outcome.NOT_RETAINED:
        raise NotFound(
            "The message is not retained any more: a subscription with retainAckedMessages, or a topic with "
            f"messageRetentionDuration, keeps what is acknowledged {where}."
        )
    if outcome is Outcome.RETRACTED:
        raise FailedPrecondition(f"The message was retracted {where}.")
    if outcome is Outcome.FILTERED:
        raise FailedPrecondition(f"The subscription's filter does not match the message {where}.")
