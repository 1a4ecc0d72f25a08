"""Changes the filter of a subscription, an extension: Google's filters cannot be changed (A3)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from broker.core.context.core import Core
from broker.core.context.event import Event, Subject
from broker.core.filtering.changes import compiled_filter
from broker.core.resources.subscription_service import attached_subscription, locked_subscription
from broker.db.driver.database import ResourceConnection, driver_of
from broker.features.filters import change_rows as filter_changes
from broker.model.errors import FailedPrecondition
from broker.model.filter_changes import MAX_EARLIER, EarlierFilter, FilterChange
from broker.model.names import leaf, project_of
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp
from broker.observability.log import fields_of
from broker.observability.metrics.families import FILTER_CHANGES


class FilterChangeService:
    """A new filter decides about messages published after the answer, in every process; the filters before it keep
    deciding about earlier messages, whether delivered yet or not.
    """

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._states = core.states
        self._counts = core.counters.process
        self._tell_event = core.tell_event

    async def set_filter(self, name: str, text: str, *, by: str = "") -> FilterChange:
        """Replace the filter; "" removes it, and the present one changes nothing.

        Raises InvalidArgument (the filter, and where it goes wrong), NotFound, FailedPrecondition (detached; too
        many filters still decide about messages).
        """
        newest = compiled_filter(text)
        async with self._database.transaction() as connection:
            subscription = await locked_subscription(connection, name)
            _check_attached(subscription)
            previous, now = subscription.filter, self._clock.now()
            if text == previous:
                return FilterChange(filter=text, previous=previous)
            needed = await _needed(connection, subscription)
            _check_capacity(subscription, needed)
            since = await filter_changes.begin_change(connection, subscription, now)
            earlier = (*needed, EarlierFilter(previous, since))
            paths = compiled_filter(text, earlier)._asdict()
            await filter_changes.write_change(
                connection,
                subscription=replace(subscription, filter=text, earlier_filters=earlier, **paths),
                since=since,
                newest=newest,
                now=now,
            )
            change = FilterChange(filter=text, previous=previous, effective_time=since)
            await self._tell_event(
                connection, _event(subscription.name, change, since, by=by), topic=subscription.topic
            )
        self._counts[FILTER_CHANGES] += 1
        who = f" by {by}" if by else ""
        self._states.report(
            "changed filters",
            f"the filter of {name} is changed{who} from {previous!r} to {text!r}, for messages published at or "
            f"after {format_timestamp(since)}",
            fields=fields_of(name, principal=by),
        )
        await self._wake_ups.announce(name)
        return change

    async def preview(self, name: str, text: str) -> FilterChange:
        """Previews `set_filter`, and its effect on the newest messages.  Raises the same errors."""
        after = compiled_filter(text)
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, name)
            if text != subscription.filter:
                _check_capacity(subscription, await _needed(connection, subscription))
        async with self._database.hot() as hot:
            comparison = await filter_changes.compare_filters(
                hot,
                shard_ids=subscription.shard_ids,
                before=compiled_filter(subscription.filter),
                after=after,
                retained_since=subscription.gets_since(self._clock.now()),
            )
        return FilterChange(filter=text, previous=subscription.filter, comparison=comparison)


def _event(name: str, change: FilterChange, since: datetime, *, by: str) -> Event:
    return Event(
        Subject(project_of(name), "filter", name),
        "begins",
        f"the filter was changed{f' by {by}' if by else ''} from {change.previous!r} to {change.filter!r}",
        occurred_at=since,
        since=since,
        amount=1,
        fields={"filter": change.filter, "previousFilter": change.previous},
    )


def _check_attached(subscription: Subscription) -> None:
    if subscription.detached:
        raise FailedPrecondition(f"Subscription is detached (resource={leaf(subscription.name)}).")


async def _needed(connection: ResourceConnection, subscription: Subscription) -> Sequence[EarlierFilter]:
    return await filter_changes.needed_filters(
        await driver_of(connection),
        subscription_id=subscription.subscription_id,
        shard_ids=subscription.shard_ids,
        earlier=subscription.earlier_filters,
    )


def _check_capacity(subscription: Subscription, needed: Sequence[EarlierFilter]) -> None:
    if len(needed) >= MAX_EARLIER:
        raise FailedPrecondition(
            f"The filter was changed {len(needed)} times since messages were published that the topic still has, "
            f"and {MAX_EARLIER} such changes are the most: it can be changed again once the messages published "
            f"before {format_timestamp(needed[0].until)} are gone (resource={leaf(subscription.name)})."
        )
