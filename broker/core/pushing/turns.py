"""Turns of endpoints to send, one request at a time.  An endpoint without a slot waits for one."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import islice

from broker.core.pushing.endpoint import Endpoint, Slot
from broker.core.pushing.slots import PushSlots
from broker.core.pushing.urgent_first import UrgentFirst
from broker.fairness.fair_turns import URGENT_TURNS
from broker.fairness.shared_capacity import Over
from broker.fairness.turn_counts import TurnCounts

# Not too many at once, so that fast endpoints can answer meanwhile and reuse their connections, and claims
# continue.  With 64 the last of 10,000 subscriptions was claimed for after 880 ms, with 16 after 620; with 8 a
# backlog to one endpoint takes an eighth longer.
_STARTS_AT_ONCE = 16
# How often endpoints that wait for slots are checked, and by how much less often for each of them.
_CHECK_SECONDS, _CHECK_SECONDS_EACH = 0.05, 0.0001
_URGENT_CHECKED = 8  # waiting urgent endpoints checked for each slot that is returned; others are checked with all


class Turns:
    """`start(endpoint, now)` starts its next request, if it may; `freed(endpoint)`: it need not wait any more."""

    def __init__(
        self,
        slots: PushSlots,
        counts: TurnCounts,
        *,
        start: Callable[[Endpoint, float], None],
        freed: Callable[[Endpoint], None],
    ) -> None:
        self._counts = counts
        self._slots = slots
        self._start = start
        self._freed = freed
        self._ready = UrgentFirst()  # endpoints with messages to send
        self._waiting: dict[Endpoint, None] = {}  # for a slot; the one that was checked last is at the end
        self._urgent: dict[str, dict[Endpoint, None]] = {}  # the urgent ones of those that wait, by project
        self._passed: Counter[str] = Counter()  # consecutive slots that urgent ones got, by project
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, endpoint: Endpoint) -> None:
        """Adds an endpoint that has something to send: it soon has a turn."""
        self._ready.add(endpoint)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start_some)

    def take_slot(self, endpoint: Endpoint, now: float) -> Slot | None:
        """A slot for the request that is about to start; None: the endpoint waits for one from now on."""
        slot = self._slots.take(endpoint, now)
        if not isinstance(slot, Over):
            if endpoint.waits_since is not None:
                self._waits_no_more(endpoint, now)
            if endpoint.slots is not None:
                has = max(endpoint.slots, len(endpoint.flights) + 1)
                endpoint.slots = None if has >= endpoint.health.window else has
            return slot
        if endpoint.waits_since is None:
            endpoint.waits_since = now
        endpoint.waits_because = slot
        endpoint.slots = max(len(endpoint.flights), 1)
        self._waiting[endpoint] = None
        if endpoint.subscription.is_urgent:
            self._urgent.setdefault(endpoint.project, {})[endpoint] = None
        self._let_in_soon()
        return None

    def give_back(self, endpoint: Endpoint, slot: Slot, now: float) -> None:
        """Gives a slot back.  Others that wait are checked in a moment.

        Urgent ones of the project are checked at once, since they take it before the endpoint sends its next
        request.
        """
        self._slots.give_back(slot)
        self._counts.ended(endpoint.project, waited=0.0, held=now - slot.since)
        if self._urgent and (urgent := self._next_urgent(endpoint, now)) is not None:
            self._waits_no_more(urgent, now)
            self._freed(urgent)
        elif endpoint.waits_since is not None and self._slots.has_capacity(endpoint, now):
            self._waits_no_more(endpoint, now)

    def _start_some(self) -> None:
        now = asyncio.get_running_loop().time()
        for _ in range(_STARTS_AT_ONCE):
            if not self._ready:
                break
            self._start(self._ready.pop(), now)
        self._scheduled = bool(self._ready)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._start_some)

    def _waits_no_more(self, endpoint: Endpoint, now: float) -> None:
        if endpoint.waits_since is not None:
            self._counts.waited(endpoint.project, now - endpoint.waits_since)
        endpoint.waits_since = None
        self._waiting.pop(endpoint, None)
        if endpoint in (urgent := self._urgent.get(endpoint.project, {})):
            del urgent[endpoint]
            if not urgent:
                del self._urgent[endpoint.project]

    def _next_urgent(self, before: Endpoint, now: float) -> Endpoint | None:
        """Returns an urgent endpoint to take the slot that another of its project has given back.

        None: any endpoint may take it.
        """
        project = before.project
        if project not in self._urgent or self._passed[project] >= URGENT_TURNS:
            del self._passed[project]
            return None
        first = islice(self._urgent[project], _URGENT_CHECKED)
        found = next((each for each in first if self._slots.has_capacity(each, now)), None)
        self._passed[project] += found is not None and not before.subscription.is_urgent
        return found

    def _let_in_soon(self) -> None:
        if self._timer is None and self._waiting:
            seconds = _CHECK_SECONDS + _CHECK_SECONDS_EACH * len(self._waiting)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._let_in)

    def _let_in(self) -> None:
        """Gives slots to endpoints that wait, as far as there are any.

        Releases messages that were held too long.
        """
        self._timer = None
        now = asyncio.get_running_loop().time()
        free = self._slots.free
        waiting = UrgentFirst()
        for endpoint in self._waiting:
            waiting.add(endpoint)
        while waiting:
            endpoint = waiting.pop()
            if endpoint.closed:
                self._waits_no_more(endpoint, now)
            elif free > 0 and self._slots.has_capacity(endpoint, now):
                free -= 1
                self._waits_no_more(endpoint, now)
                self._freed(endpoint)
            elif endpoint.buffer:
                self._start(endpoint, now)  # it releases messages that are too old
        if not self._waiting:
            self._passed.clear()
        self._let_in_soon()
