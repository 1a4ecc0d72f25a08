"""Everything that clients do with a broker, at once: publish, receive in three ways, settle in many, seek.

    workload = Workload(urls, run="r1", seed=1)
    async with workload.running():      # creates topics and subscriptions
        …                               # whatever may happen
    check(workload.history)             # healed and drained by now

Each client has dice of its own, from the seed and its name: what one does does not change the others.  Rates are
bounded, so that a machine of two processors carries clients and broker side by side.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tests.faults.clients.actor import Actor
from tests.faults.clients.carrier import Carrier
from tests.faults.clients.endpoints import Endpoints
from tests.faults.clients.filter_changer import FilterChanger
from tests.faults.clients.gate import Gate
from tests.faults.clients.historian import Historian
from tests.faults.clients.hurrier import Hurrier
from tests.faults.clients.mender import Mender
from tests.faults.clients.operator import Operator
from tests.faults.clients.perisher import Perisher
from tests.faults.clients.publisher import Publisher
from tests.faults.clients.puller import Puller
from tests.faults.clients.recaller import Recaller
from tests.faults.clients.recoverer import Recoverer
from tests.faults.clients.repeater import Repeater
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.retractor import Retractor
from tests.faults.clients.shapes import Shapes
from tests.faults.clients.shop import Shop
from tests.faults.clients.stalls import note_stalls
from tests.faults.clients.stream import Streamer
from tests.faults.clients.ticker import Ticker
from tests.faults.clients.topology import EVENTS, PLANS, SETTLING, SHAPED, TOPIC, Plan
from tests.faults.guard import Guard
from tests.faults.history import History

DRAIN_SECONDS = 90.0  # longer than any lease, retry delay or push backoff of what has been healed
_SETTLED_SECONDS = 1.0  # for so long nothing is left, then nothing more will come
_CHECK_SECONDS = 0.3
_COPIED_FOR = "3600s"  # longer than a run
_SHAPED_RATE = 2.0  # publish requests a second
ACTORS: tuple[type[Actor], ...] = (
    *(Mender, Repeater, Retractor, Perisher, Ticker, Shop, Recaller, Recoverer, Carrier, Hurrier, FilterChanger),
)


class Workload:
    """`urls` of brokers on one database; a fault may change the list in place."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        run: str,
        seed: int,
        plans: Sequence[Plan] = PLANS,
        publishers: int = 3,
        rate: float = 6.0,
        operator_pause: float = 4.0,
        guard: Guard | None = None,
        superuser_url: str = "",
    ) -> None:
        """`run` names the project; `rate`: publish requests a second of each publisher; `guard`: has what brokers
        that ask who calls are shown; `superuser_url`: of the brokers' database.
        """
        self.history = History(plan.terms for plan in plans)
        self.drained_in = 0.0  # seconds
        self._plans, self._seed = plans, seed
        self.caller = RestCaller(urls, f"projects/faults-{run}", guard, superuser_url)
        self._gates = {plan.name: Gate() for plan in plans if plan.sought}
        self.endpoints = Endpoints(self.history, self._dice("endpoints"))
        self._publishers = [
            Publisher(name, self.caller, self.history, self._dice(name), rate=rate)
            for name in (f"publisher-{n}" for n in range(publishers))
        ]
        self._topics = sorted({TOPIC, *(plan.terms.topic for plan in plans)})
        self._shapes = Shapes(self.caller) if SHAPED in self._topics else None
        if self._shapes is not None:
            dice = self._dice("shaper")
            self._publishers.append(
                Publisher("shaper", self.caller, self.history, dice, rate=_SHAPED_RATE, shapes=self._shapes)
            )
        self._receivers: list[Puller | Streamer] = [
            Puller(name, plan.terms, self.caller, self.history, self._dice(name), self._gates.get(plan.name))
            for plan in plans
            for name in (f"puller-{plan.name}-{n}" for n in range(plan.pullers))
        ]
        self._receivers += [
            Streamer(name, plan.terms, self.caller, self.history, self._dice(name))
            for plan in plans
            for name in (f"streamer-{plan.name}-{n}" for n in range(plan.streams))
        ]
        names = [plan.name for plan in plans if not plan.paused]
        self._operator = Operator(
            self.caller, self.history, self._dice("operator"), self._gates, names, pause=operator_pause
        )
        self._actors = [
            actor(self.caller, self.history, self._dice(actor.__name__.lower()), plans, pause=operator_pause)
            for actor in ACTORS
        ]
        self._operators: list[Operator | Actor] = [self._operator, *self._actors]

    @property
    def unforeseen(self) -> list[str]:
        """Answers that no fault excuses."""
        return self.caller.unforeseen

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load within the block, which heals what it breaks; then everything is drained, and looked at."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.caller)
            self._endpoint_url = await stack.enter_async_context(self.endpoints.listening())
            await self._create()
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(note_stalls(self.history))
                senders = [tasks.create_task(publisher.run()) for publisher in self._publishers]
                senders += [tasks.create_task(actor.run()) for actor in self._operators]
                for receiver in self._receivers:
                    tasks.create_task(receiver.run())
                try:
                    yield
                    self._stop_senders()
                    await asyncio.wait(senders)
                    await self._drain()
                finally:
                    watch.cancel()
                    self._stop()
            await self._delete()

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}/{name}")

    def _stop_senders(self) -> None:
        for publisher in self._publishers:
            publisher.stopping = True
        for actor in self._operators:
            actor.stopping.set()

    def _stop(self) -> None:
        self._stop_senders()
        for receiver in self._receivers:
            receiver.stop()

    async def _create(self) -> None:
        if self.caller.guard is not None:
            await self.caller.guard.admit(self.caller.project)
        if self._shapes is not None:
            await self._shapes.create()
        copied = {plan.terms.copies for plan in self._plans}
        for topic in self._topics:
            settings: Json = {"schemaSettings": self._shapes.settings} if self._shapes and topic == SHAPED else {}
            if topic in copied:
                settings["messageRetentionDuration"] = _COPIED_FOR
            await self.caller.do("PUT", f"topics/{topic}", settings, fine=[409])
        for plan in self._plans:
            body = plan.body(self.caller.project, self._endpoint_url)
            await self.caller.do("PUT", f"subscriptions/{plan.name}", body, fine=[409])
            if plan.paused:
                await self.caller.do("POST", f"subscriptions/{plan.name}:pausePush", {})
        await self._choose_event_topic(f"{self.caller.project}/topics/{EVENTS}")

    async def _choose_event_topic(self, name: str) -> None:
        if EVENTS in self._topics:
            await self.caller.do("PATCH", "settings", {"eventTopic": name})

    async def _delete(self) -> None:
        """So that nobody works for this run any more."""
        await self._choose_event_topic("")
        for plan in self._plans:
            await self.caller.do("DELETE", f"subscriptions/{plan.name}", fine=[404])
        for topic in self._topics:
            await self.caller.do("DELETE", f"topics/{topic}", fine=[404])
        if self._shapes is not None:
            await self._shapes.delete()

    async def _drain(self) -> None:
        """All receivers ack what comes, until nothing is left; what is left after a time is a violation."""
        began = time.monotonic()
        for receiver in self._receivers:
            receiver.handling.settling = True
        await self._heal_endpoints()
        for actor in self._actors:
            await actor.mend()
        while time.monotonic() < began + DRAIN_SECONDS:
            if await self._is_empty():
                await asyncio.sleep(_SETTLED_SECONDS)
                if await self._is_empty():
                    break
            for actor in self._actors:
                await actor.mend()
            await asyncio.sleep(_CHECK_SECONDS)
        self.drained_in = time.monotonic() - began
        for plan in self._plans:
            await self._operator.check(plan.name, final=True)
        historian = Historian(self.caller, self.history, self._dice("historian"))
        for plan in self._plans:
            if plan.terms.journal:
                await historian.read(plan.terms)

    async def _heal_endpoints(self) -> None:
        """New endpoints, for push backoff would go on for a minute."""
        for plan in self._plans:
            if plan.endpoint and not plan.paused:
                config = {"pushEndpoint": f"{self._endpoint_url}/{SETTLING}/{plan.name}"}
                await self.caller.do("POST", f"subscriptions/{plan.name}:modifyPushConfig", {"pushConfig": config})

    async def _is_empty(self) -> bool:
        for plan in self._plans:
            if plan.paused:
                continue
            position = await self._operator.check(plan.name)
            if position.undelivered or position.outstanding:
                return False
        return True
