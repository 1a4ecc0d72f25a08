"""The parts of one broker process: how they are built, connected, started and stopped.

docs/architecture.md (One process) describes the modules of this package in the order in which `Broker` uses them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from starlette.routing import Route

from broker.access.secrets.secrets import Secrets
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.limits.request_memory import RequestMemory
from broker.api.pages.well_known import well_known_routes
from broker.api.permissions import Needs
from broker.app.config import AppConfig
from broker.app.core import MakeClock, core_workers, database_is_away, make_core
from broker.app.features import CHANGES_OF_CORE, FEATURES, Register
from broker.app.guard import Guard, make_address_turns, make_auditor, make_call_log, make_gate
from broker.app.jobs import Jobs
from broker.app.messages import Messages
from broker.app.parts import Parts
from broker.app.reactions import Reactions
from broker.app.services import make_services
from broker.core.context.core import Core
from broker.core.context.readiness import READY_SECONDS, WhileAway, begin_when_there, check_ready
from broker.core.context.storage_alarm import StorageAlarm
from broker.core.log.partitions import make_partitions_ahead
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.jitter import Jitter, retry_jitter
from broker.core.process.next_due import NextDue
from broker.core.process.supervisor import Supervisor, Worker
from broker.core.pushing.client.address_policy import parse_address_policy
from broker.core.pushing.client.http_client import PushClient
from broker.core.pushing.endpoint_incidents import EndpointIncidents
from broker.core.pushing.pusher import GRACE_SECONDS, Pusher
from broker.core.pushing.request.oidc_token import TokenSigner
from broker.db.driver.replica import Replica
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import INSPECTIONS_AT_ONCE, ResourceTurns
from broker.fairness.turn_counts import TurnCounts
from broker.features.feature import Feature
from broker.features.operations.operations import Operations
from broker.model.errors import BrokerError
from broker.model.operation_verb import Verb
from broker.net.http1.web_pages import WebPages
from broker.observability.metrics.counters import Counters

REPLICA_CONNECTIONS = 8


class Broker:
    """A broker without its port.  Tests drive its parts from outside, for example to set the time."""

    def __init__(
        self,
        config: AppConfig,
        *,
        features: Mapping[str, Register] = FEATURES,
        make_clock: MakeClock = DatabaseClock,
        jitter: Jitter = retry_jitter,
        counters: Counters | None = None,
        storage: StorageAlarm | None = None,
    ) -> None:
        """`features` are registered in their order.  All parts ask the clock of `make_clock` for the time.
        `jitter` lengthens retry delays.  `counters` and `storage` are given if the caller shares them with the
        process.
        """
        self._config = config
        reactions = Reactions()
        core = make_core(
            config,
            reactions,
            make_clock=make_clock,
            counters=counters or Counters(),
            storage=storage or StorageAlarm(),
        )
        for name, change in CHANGES_OF_CORE.items():
            if name in features:
                core = change(config, core)
        self.core = core
        self.guard = guard = Guard(config, core)
        self.requests, self.answers = _make_memories(config)
        self.replica_reads = replica_reads = _make_replica_reads(config, core)

        messages = Messages(config, core, jitter=jitter, has_capacity=self.answers.has_capacity)
        self.claiming, self.acking = messages.claiming, messages.acking
        self.publishing = messages.publishing
        self.signer = _make_signer(config, core, guard.secrets)
        self.pusher = _make_pusher(config, core, guard=guard, messages=messages, signer=self.signer)

        self.next_due = NextDue()  # when delayed messages are due
        self.services = make_services(config, core, guard=guard, messages=messages, next_due=self.next_due)
        self.gate = make_gate(guard.access, self.services.subscriptions.get_subscription)
        self.parts = Parts(
            config=config,
            core=core,
            guard=guard,
            gate=self.gate,
            messages=messages,
            services=self.services,
            pusher=self.pusher,
            next_due=self.next_due,
            replica_reads=replica_reads,
            query_turns=_make_query_turns(core, self.answers),
            operations=_make_operations(config, core, guard=guard, messages=messages),
            needed_to_start=self._needed_to_start,
            policy_resources={
                "topics": self.services.topics.get_topic,
                "subscriptions": self.services.subscriptions.get_subscription,
                "snapshots": self.services.snapshots.get_snapshot,
            },
        )
        self.features = {name: self._register(register) for name, register in features.items()}
        registered = self.features.values()
        self.rpcs = [*self.services.make_rpcs(), *(row for feature in registered for row in feature.rpcs)]
        clean_ups = [clean_up for feature in registered for clean_up in feature.clean_ups]
        self.jobs = Jobs(config, core, messages=messages, replica_reads=replica_reads, clean_ups=clean_ups)
        self.workers = self._make_workers()

        # Checks before each call of REST and gRPC, and the records of it afterwards.
        self.web_pages = WebPages(hosts=config.hosts, origins=config.origins, states=core.states)
        self.auditor = make_auditor(config, guard.audit_trail)
        self.address_turns = make_address_turns(core.loop_turns)
        self.calls = make_call_log(config, core.states, excused=self.is_excused, turns=self.address_turns)

        reactions.connect(core, guard=guard, claiming=self.claiming, pusher=self.pusher, features=registered)

    def _register(self, register: Register) -> Feature:
        """Builds a feature, and connects what it adds to the parts of the core."""
        feature = register(self.parts)
        self.core.resources.add_listeners(feature.listeners)
        self.publishing.preparation.add_rules(feature.publish_rules)
        self.services.topics.add_fields(feature.topic_fields)
        self.services.topics.add_views(feature.topic_views)
        self.services.subscriptions.add_fields(feature.subscription_fields)
        for scheduler in (self.claiming.pulls, self.claiming.pushes):
            orders = None if feature.make_shard_orders is None else feature.make_shard_orders()
            scheduler.add_hooks(orders=orders, answer=feature.answer_hook)
        self.parts.policy_resources.update(feature.policy_resources)
        return feature

    def well_known_routes(self) -> list[Route]:
        """Returns the routes at which receivers of pushes find the keys of their tokens."""
        issuer, keys = self._config.token_issuer, self.signer.published_keys
        return well_known_routes(keys, issuer=issuer, is_configured=bool(self._config.issuer))

    def _needed_to_start(self, verb: Verb) -> Needs | None:
        return next((row.needs for row in self.rpcs if row.starts is verb), None)

    def is_excused(self) -> bool:
        """Whether calls fail for a reason that the log has: the database is away, or the broker stops."""
        return database_is_away(self.core.states) or self.claiming.long_poll.is_stopping

    async def check_ready(self) -> None:
        """Raises a BrokerError unless a publish, a pull and an ack would find a database that they can use."""
        await check_ready(self.core.database, self.core.storage)

    def stop_waiting(self) -> None:
        """Answers the pulls that wait, and lets no other wait: the process is about to stop."""
        self.claiming.stop_waiting()

    @asynccontextmanager
    async def running(self, while_away: WhileAway = contextlib.nullcontext) -> AsyncIterator[None]:
        """Runs the broker within the block.  `while_away()` is entered while the start waits for the database."""
        core = self.core
        try:
            await begin_when_there(self._begin, core.database, core.states, while_away)
            self.pusher.start()
            excused = partial(database_is_away, core.states)
            supervisor = Supervisor(self.workers, core.states, excused=excused)
            await supervisor.start()
            try:
                yield
            finally:
                await self._stop(supervisor)
        finally:
            # Also after a failed start: the pool's tasks are not cancelled otherwise, and would keep the process
            # running.
            await self.replica_reads.close()
            await core.database.close()

    async def _begin(self) -> None:
        """Reads what must be known before the first call.  It is done again while the database is away."""
        core = self.core
        await core.clock.synchronise()
        async with core.database.connection() as connection:
            await make_partitions_ahead(connection, now=core.clock.now())
        await core.processes.run_once()
        for feature in self.features.values():
            if feature.begin is not None:
                await feature.begin()
        await self.signer.refresh()
        await self.jobs.table_sizes.run_once()
        if self.guard.access is not None:
            await self.guard.access.start()

    def _make_workers(self) -> dict[str, Worker]:
        """Returns the workers that run in the background until the broker stops, by the names that the log uses."""
        return {
            **core_workers(self.core),
            **self.pusher.workers(),
            **self.guard.workers(),
            **self.jobs.workers(),
            **{name: worker for feature in self.features.values() for name, worker in feature.workers.items()},
        }

    async def _stop(self, supervisor: Supervisor) -> None:
        """Hands nothing new out, ends the background work, and writes down what is left."""
        self.claiming.long_poll.stop_waiting()
        with contextlib.suppress(TimeoutError):  # the database may be down already
            async with asyncio.timeout(READY_SECONDS):
                await self.claiming.pushes.stop()
        await supervisor.stop()
        for feature in self.features.values():
            if feature.stop is not None:
                feature.stop()
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(READY_SECONDS + GRACE_SECONDS):
                await self.pusher.stop()
                await self.core.processes.leave()
                await self.claiming.readers.leave()
        await self.core.tasks.close()
        for feature in self.features.values():
            if feature.close is not None:
                await feature.close()
        if self.guard.audit_trail is not None:
            await self.guard.audit_trail.close()
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self.acking.records.flush()
                await self.claiming.activity.record()


def _make_memories(config: AppConfig) -> tuple[RequestMemory, AnswerMemory]:
    """Returns the budgets of a process for the bytes of requests, and of answers."""
    most = config.request_memory_mb * 1_000_000
    return RequestMemory(most), AnswerMemory(most)


def _make_replica_reads(config: AppConfig, core: Core) -> ReplicaReads:
    """Reads by inspection calls, scrapes and jobs, each on a connection to the replica, if there is one."""
    url, schema = config.replica_database_url, config.database_schema
    return ReplicaReads(
        core.database,
        Replica(url, schema=schema, size=REPLICA_CONNECTIONS) if url else None,
        most_behind=config.replica_max_lag_seconds,
        states=core.states,
        counters=core.counters,
    )


def _make_query_turns(core: Core, answers: AnswerMemory) -> ResourceTurns:
    """Turns, by project, of calls that read many messages or subscriptions."""
    counts = TurnCounts(core.counters, "look")
    return ResourceTurns(at_once=INSPECTIONS_AT_ONCE, counts=counts, has_capacity=answers.has_capacity)


def _make_operations(config: AppConfig, core: Core, *, guard: Guard, messages: Messages) -> Operations:
    preparation, at_once = messages.publishing.preparation, config.operations_at_once
    return Operations(core, preparation, guard.check_publisher, at_once=at_once)


def _make_signer(config: AppConfig, core: Core, secrets: Secrets) -> TokenSigner:
    return TokenSigner(core.database, core.clock, issuer=config.token_issuer, secrets=secrets)


def _make_pusher(config: AppConfig, core: Core, *, guard: Guard, messages: Messages, signer: TokenSigner) -> Pusher:
    excused = partial(database_is_away, core.states)
    return Pusher(
        core,
        scheduler=messages.claiming.pushes,
        coalescer=messages.acking.coalescer,
        signer=signer,
        incidents=EndpointIncidents(core.states, core.resources, excused=excused),
        access=guard.access,
        secrets=guard.secrets,
        make_client=partial(_make_push_client, config),
        failing_after=config.push_failing_after,
    )


def _make_push_client(config: AppConfig) -> PushClient:
    policy = parse_address_policy(config.push_private_addresses, config.push_allowed_networks)
    return PushClient(policy=policy, ca_file=config.push_ca_file)
