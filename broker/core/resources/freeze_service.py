"""Freezes topics: publishes are refused, with a reason; extensions (G2)."""

from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.resources.topic_service import topic_not_found
from broker.model.freeze import Freeze, check_reason
from broker.observability.log import fields_of

_FREEZES = "frozen topics"


class FreezeService:
    """Freezes and unfreezes topics.  Messages in the log stay, and are delivered as before."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._states = core.states

    async def freeze(self, name: str, reason: str, *, by: str = "") -> None:
        """Refuse publishes until `unfreeze`, in every process, from the answer on; a later reason replaces an
        earlier one.  `by`: who wants it ("": it is not known).  Raises NotFound, InvalidArgument (the reason).
        """
        check_reason(reason)
        await self._set(name, Freeze(reason, self._clock.now(), by))
        who, why = f" by {by}" if by else "", reason.rstrip(".") or "no reason was given"
        self._states.report(
            _FREEZES,
            f"{name} is frozen{who} until unfrozen: {why}",
            fields=fields_of(name, principal=by, reason=why),
        )

    async def unfreeze(self, name: str, *, by: str = "") -> None:
        """Ends the freeze of a topic.  Raises NotFound."""
        if await self._set(name, None):
            self._states.report(
                _FREEZES,
                f"{name} is unfrozen{f' by {by}' if by else ''}",
                fields=fields_of(name, principal=by),
            )

    async def _set(self, name: str, freeze: Freeze | None) -> bool:
        """Returns whether it was frozen."""
        async with self._database.transaction() as connection:
            topic = await topics.lock_topic(connection, name=name)
            if topic is None:
                raise topic_not_found(name)
            await topics.freeze_topic(connection, topic=topic, freeze=freeze)
        await self._wake_ups.announce(name)
        return topic.freeze is not None
