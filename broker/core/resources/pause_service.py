"""Pauses subscriptions, by one state for pulls, streams and pushes; extensions (G2)."""

from broker.core.catalog import push_state_rows as push_states
from broker.core.context.core import Core
from broker.core.resources.subscription_service import locked_subscription
from broker.db.driver.database import ResourceConnection
from broker.model.errors import FailedPrecondition
from broker.model.names import leaf
from broker.model.pause import check_reason
from broker.model.subscription import Subscription
from broker.observability.log import fields_of

_PAUSES = "paused subscriptions"


class PauseService:
    """Pauses and resumes subscriptions.

    While one is paused its messages stay, outstanding ones may be settled, and none are delivered.
    """

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._states = core.states

    async def pause(self, name: str, reason: str, *, by: str = "", pushed: bool = False) -> None:
        """Hand out nothing until it is resumed, in no process, from the answer on; a later reason replaces an
        earlier one.  `by`: who wants it ("": it is not known); `pushed`: only if it is.

        Raises NotFound, FailedPrecondition (detached, or not pushed), InvalidArgument (the reason).
        """
        check_reason(reason)
        reason = reason or f"Paused by a call of {'pausePush' if pushed else 'pause'}."
        async with self._database.transaction() as connection:
            subscription = await _lock(connection, name, pushed=pushed)
            subscription_id = subscription.subscription_id
            await push_states.pause_pushes(
                connection, subscription_id=subscription_id, reason=reason, now=self._clock.now(), by=by
            )
            await push_states.pause_claims(connection, subscription_id=subscription_id)
        if not subscription.is_push:  # the process that delivers reports pauses of push subscriptions
            who = f" by {by}" if by else ""
            self._states.report(
                _PAUSES,
                f"{name} is paused{who} until resumed: {reason.rstrip('.')}",
                fields=fields_of(name, principal=by, reason=reason),
            )
        await self._wake_ups.announce(name)

    async def resume(self, name: str, *, by: str = "", pushed: bool = False) -> None:
        """Ends a pause.  Does nothing if there is none.  Raises NotFound, FailedPrecondition."""
        async with self._database.transaction() as connection:
            subscription = await _lock(connection, name, pushed=pushed)
            there_was = await push_states.resume_pushes(connection, subscription_id=subscription.subscription_id)
        if there_was and not subscription.is_push:
            self._states.report(
                _PAUSES, f"{name} is resumed{f' by {by}' if by else ''}", fields=fields_of(name, principal=by)
            )
        await self._wake_ups.announce(name)


async def _lock(connection: ResourceConnection, name: str, *, pushed: bool) -> Subscription:
    """Locks a subscription until the transaction ends.

    Raises NotFound, FailedPrecondition (detached; with `pushed`: not pushed).
    """
    subscription = await locked_subscription(connection, name)
    if subscription.detached:
        raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
    if pushed and not subscription.is_push:
        raise FailedPrecondition(f"Nothing is pushed for this subscription (resource={leaf(name)}).")
    return subscription
