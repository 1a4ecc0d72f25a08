"""The push subscriptions that this process delivers to, synchronized with the database."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from weakref import WeakValueDictionary

from broker.access.secrets.secrets import CannotOpen, Secrets
from broker.access.secrets.webhook_secrets import opened
from broker.core.catalog.push_state_rows import read_push_states
from broker.core.catalog.subscription_rows import find_subscriptions, list_push_subscriptions
from broker.core.pushing.client.target import origin_of
from broker.core.pushing.endpoint import Endpoint, Memory
from broker.core.pushing.endpoint_incidents import EndpointIncidents
from broker.core.pushing.health.endpoint_health import EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.known_origins import KnownOrigins
from broker.core.pushing.request.envelope import Envelope
from broker.core.pushing.withheld import WithheldPushes
from broker.db.driver.database import Database, ResourceConnection
from broker.model.names import project_of
from broker.model.push_state import PushState
from broker.model.subscription import Subscription

_PAGE = 500  # subscriptions that one statement reads
_READ_ALL_SECONDS = 30.0  # the delay of a change whose notification was lost
_SPACING_SECONDS = 1.0  # between two reads of all


class Endpoints:
    """`run` is a supervised worker: the only one that adds and removes."""

    def __init__(
        self,
        database: Database,
        incidents: EndpointIncidents,
        origins: KnownOrigins,
        withheld: WithheldPushes,
        *,
        secrets: Secrets,
        why_no_token: Callable[[], str],
        owns: Callable[[int], bool],
        added: Callable[[Endpoint], None],
        removed: Callable[[Endpoint], None],
        gone: Callable[[Endpoint], None],
        watch_of: Callable[[PushState | None], FailingWatch],
    ) -> None:
        """`owns(subscription_id)`: whether this process delivers to it.  `secrets` decrypt those of webhooks;
        `why_no_token()`: why no token can be signed ("": it can).

        `removed(endpoint)`: nothing is delivered to it any more, here.  `gone(endpoint)`: nor anywhere, because its
        subscription is deleted or pushed elsewhere, so there is no reason to wait for what is out.
        `watch_of(state)` watches for failures, beginning with those that were written down.
        """
        self._database = database
        self._incidents = incidents
        self._origins = origins
        self._withheld = withheld
        self._secrets = secrets
        self._why_no_token = why_no_token
        self._owns = owns
        self._added = added
        self._removed = removed
        self._gone, self._watch_of = gone, watch_of
        self._endpoints: dict[int, Endpoint] = {}
        self._by_name: dict[str, Endpoint] = {}
        self._awaited: dict[str, list[Endpoint]] = {}  # removed, with outstanding requests that continue
        self._memory = Memory()  # of all endpoints
        self._memories: WeakValueDictionary[str, Memory] = WeakValueDictionary()  # by project
        self._changed: set[str] = set()
        self._read_all, self._read_at, self._spacing = True, 0.0, 0.0
        self._something = asyncio.Event()

    def get(self, subscription_id: int) -> Endpoint | None:
        """The endpoint of a subscription, if this process delivers to it."""
        return self._endpoints.get(subscription_id)

    def all(self) -> Iterable[Endpoint]:
        """Returns all endpoints that this process delivers to."""
        return self._endpoints.values()

    def resource_changed(self, name: str | None) -> None:
        """Notes a change of a subscription or topic; None: any may have changed."""
        if name is not None and "/subscriptions/" in name:
            self._changed.add(name)
            if name in self._by_name:
                self._by_name[name].suspended = True
        else:  # a change or deletion of a topic concerns many
            self._read_all = True
        self._something.set()

    async def run(self) -> None:
        """Follow the changes, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._changed:  # otherwise the read has failed
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_reading):
                        await self._something.wait()
            self._something.clear()
            await self._follow_changes()
            if loop.time() >= self._next_reading:
                try:
                    await self._follow_all()
                except BaseException:
                    self._read_all = True
                    raise

    @property
    def _next_reading(self) -> float:
        """The time to read all subscriptions again: soon after a change, but not without a pause."""
        return self._read_at + (self._spacing if self._read_all else _READ_ALL_SECONDS)

    async def _follow_changes(self) -> None:
        while self._changed:
            names = list(islice(self._changed, _PAGE))
            self._changed.difference_update(names)
            try:
                async with self._database.transaction() as connection:
                    found = {s.name: s for s in await find_subscriptions(connection, names=names)}
                    states = await self._read_states(connection, list(found.values()))
            except BaseException:
                self._changed.update(names)
                self._something.set()  # they are suspended until they are read, once `run` is started again
                raise
            for name in names:
                self._update(name, found.get(name), states)

    async def _read_states(
        self, connection: ResourceConnection, subscriptions: Sequence[Subscription]
    ) -> Mapping[int, PushState]:
        """Returns the stored push states of the endpoints that this process may be about to take over."""
        new = [
            s.subscription_id
            for s in subscriptions
            if s.is_push and s.subscription_id not in self._endpoints and self._owns(s.subscription_id)
        ]
        return await read_push_states(connection, subscription_ids=new) if new else {}

    async def _follow_all(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._read_all = False  # later changes are read again
        found: set[int] = set()
        names: set[str] = set()
        last, more = 0, True
        while more:
            async with self._database.transaction() as connection:
                page = await list_push_subscriptions(connection, after=last, limit=_PAGE)
                states = await self._read_states(connection, page)
            for subscription in page:
                self._update(subscription.name, subscription, states)
                last = subscription.subscription_id
                found.add(last)
                names.add(subscription.name)
            more = len(page) == _PAGE
        for endpoint in [e for id_, e in self._endpoints.items() if id_ not in found]:
            self._remove(endpoint)
        for name in self._awaited.keys() - names:
            self._let_go(name, None)
        self._incidents.all_of_ours(names)
        self._withheld.all_of_ours(names)
        self._read_at = loop.time()
        self._spacing = _SPACING_SECONDS + 10 * (
            self._read_at - started
        )  # many topics may be created one after another

    def _update(self, name: str, subscription: Subscription | None, states: Mapping[int, PushState]) -> None:
        if name in self._changed:  # changed again since it was read
            return
        known, as_read = self._by_name.get(name), subscription
        if subscription is None or not subscription.is_push or not self._owns(subscription.subscription_id):
            self._incidents.not_ours(name, pulled=subscription is not None and not subscription.is_push)
            self._withheld.forget(name)
            subscription = None
        else:
            self._incidents.read(subscription)
            self._withheld.read(subscription)
            if subscription.pause is not None or self._is_held(subscription, known):
                subscription = None
        if known is not None and (
            known.closed or subscription is None or known.subscription_id != subscription.subscription_id
        ):
            self._remove(known)
            known = None
        if subscription is not None:
            if known is None:
                self._add(subscription, self._watch_of(states.get(subscription.subscription_id)))
            elif known.suspended or known.subscription != subscription:
                self._change(known, subscription)
        self._let_go(name, as_read)

    def _is_held(self, subscription: Subscription, known: Endpoint | None) -> bool:
        """Whether its requests cannot be signed for want of a key; that is checked again at each reading."""
        why = self._why_no_token() if subscription.push_config.oidc_token is not None else ""
        if known is None or known.suspended or known.subscription != subscription:  # then it is created again
            try:
                opened(subscription, self._secrets)
            except CannotOpen as error:
                why = str(error)
        self._incidents.held(subscription, why)
        return bool(why)

    def _add(self, subscription: Subscription, failing: FailingWatch) -> None:
        now = asyncio.get_running_loop().time()
        project = project_of(subscription.name)
        trouble = self._origins.trouble(project, origin_of(subscription.push_config.endpoint), now)
        before = None if trouble is None else trouble.failures
        health = EndpointHealth(subscription.extensions.push, now=now, failures_before=before)
        memory = self._memories.setdefault(project, Memory(self._memory))
        endpoint = Endpoint(subscription, health, Envelope(subscription, self._secrets), failing, memory)
        self._endpoints[subscription.subscription_id] = endpoint
        self._by_name[subscription.name] = endpoint
        self._added(endpoint)

    def _change(self, endpoint: Endpoint, subscription: Subscription) -> None:
        old = endpoint.subscription
        is_another = old.push_config.endpoint != subscription.push_config.endpoint
        if is_another or old.shard_ids != subscription.shard_ids:
            if is_another:
                self._incidents.replaced(endpoint, subscription)
            self._remove(endpoint)  # the new one has its own health, and the known state of its origin
            self._add(subscription, self._watch_of(None) if is_another else endpoint.failing)
            return
        endpoint.suspended = False
        endpoint.subscription = subscription
        endpoint.envelope = Envelope(subscription, self._secrets)
        endpoint.health.reconfigure(subscription.extensions.push, now=asyncio.get_running_loop().time())
        self._added(endpoint)

    def _remove(self, endpoint: Endpoint) -> None:
        endpoint.closed = endpoint.removed = True
        del self._endpoints[endpoint.subscription_id]
        del self._by_name[endpoint.subscription.name]
        if endpoint.flights or endpoint.late_flights:
            self._awaited.setdefault(endpoint.subscription.name, []).append(endpoint)
        self._incidents.removed(endpoint)
        self._removed(endpoint)

    def _let_go(self, name: str, subscription: Subscription | None) -> None:
        """Stops awaiting the answers of removed endpoints that `subscription` does not have.

        None: the subscription was deleted.
        """
        still = []
        for endpoint in self._awaited.pop(name, ()):
            if subscription is None or not _is_of(endpoint, subscription):
                self._gone(endpoint)
            elif endpoint.flights or endpoint.late_flights:
                still.append(endpoint)  # paused, or owned by another process
        if still:
            self._awaited[name] = still


def _is_of(endpoint: Endpoint, subscription: Subscription) -> bool:
    """Whether the subscription is pushed there; pauses do not matter, nor whose it is to deliver."""
    old = endpoint.subscription
    return (
        subscription.is_push
        and old.subscription_id == subscription.subscription_id
        and old.push_config.endpoint == subscription.push_config.endpoint
    )
