"""Push subscriptions that are paused because the broker may not push to them.

They are checked again from time to time, because settings may change at a start, and the address of a name at any
time.  Their messages wait meanwhile, and claimed messages are released without counting the attempt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence

from broker.core.catalog.push_state_rows import resume_pushes
from broker.core.context.wake_ups import WakeUps
from broker.db.driver.database import Database
from broker.model.pause import is_withheld
from broker.model.subscription import Subscription

CHECK_SECONDS = 1.0  # between two passes; a pass without subscriptions costs nothing
_AGAIN_SECONDS = 30.0  # between two checks of a subscription
_AT_ONCE = 50  # names that are resolved


class WithheldPushes:
    """The withheld subscriptions that this process would deliver to.

    Endpoints reports them; `run_once` is a worker.
    """

    def __init__(
        self, database: Database, wake_ups: WakeUps, *, why_not: Callable[[Subscription], Awaitable[str | None]]
    ) -> None:
        """`why_not(subscription)`: nothing may be pushed for it; None: it may.  OSError: that is not known now."""
        self._database = database
        self._wake_ups = wake_ups
        self._why_not = why_not
        self._withheld: dict[str, Subscription] = {}  # by name
        self._check_at: dict[str, float] = {}  # by name

    def read(self, subscription: Subscription) -> None:
        """Records the present state of a subscription."""
        if subscription.pause is None or not is_withheld(subscription.pause.reason):
            self.forget(subscription.name)
            return
        self._withheld[subscription.name] = subscription
        # At once if it is new here: the process that paused it may have had other settings.
        self._check_at.setdefault(subscription.name, asyncio.get_running_loop().time())

    def forget(self, name: str) -> None:
        """Forgets a subscription that was deleted, or belongs to another process now."""
        self._withheld.pop(name, None)
        self._check_at.pop(name, None)

    def all_of_ours(self, names: Container[str]) -> None:
        """Forgets all other subscriptions: these are all of this process."""
        for name in [name for name in self._withheld if name not in names]:
            self.forget(name)

    def check_soon(self) -> None:
        """Checks all withheld subscriptions soon, since the rules have changed."""
        now = asyncio.get_running_loop().time()
        self._check_at = dict.fromkeys(self._check_at, now)

    async def run_once(self) -> None:
        """Resume those that may be pushed by now.  Raises a BrokerError."""
        now = asyncio.get_running_loop().time()
        due = [name for name, check in self._check_at.items() if check <= now]
        for begin in range(0, len(due), _AT_ONCE):
            names = due[begin : begin + _AT_ONCE]
            withheld = [self._withheld[name] for name in names if name in self._withheld]
            self._check_at |= {subscription.name: now + _AGAIN_SECONDS for subscription in withheld}
            for subscription in await self._allowed(withheld):
                await self._resume(subscription)

    async def _allowed(self, withheld: Sequence[Subscription]) -> list[Subscription]:
        reasons = await asyncio.gather(*map(self._why_not, withheld), return_exceptions=True)
        for reason in reasons:
            if isinstance(reason, BaseException) and not isinstance(reason, OSError):
                raise reason
        return [subscription for subscription, why in zip(withheld, reasons, strict=True) if why is None]

    async def _resume(self, subscription: Subscription) -> None:
        """Resumes a subscription, unless it is paused for another reason by now."""
        assert subscription.pause is not None
        async with self._database.transaction() as connection:
            await resume_pushes(
                connection,
                subscription_id=subscription.subscription_id,
                reason=subscription.pause.reason,
            )
        await self._wake_ups.announce(subscription.name)
