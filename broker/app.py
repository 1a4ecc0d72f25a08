"""The composition root: the one place that builds the parts and connects them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from starlette.routing import Route

from broker.app_config import AppConfig
from broker.domain.errors import BrokerError
from broker.domain.expiration import RECORD_INTERVAL
from broker.engine import (
    Transforming,
    make_acks,
    make_claims,
    make_database,
    make_long_poll,
    make_looks,
    make_publishes,
    make_push_client,
    make_quotas,
    make_records,
)
from broker.front.answer_memory import AnswerMemory
from broker.front.request_memory import RequestMemory
from broker.front.well_known import well_known_routes
from broker.guard import (
    guard_workers,
    make_access,
    make_address_turns,
    make_audit_trail,
    make_auditor,
    make_call_log,
    make_gate,
)
from broker.passes import Passes
from broker.port.http1.web_pages import WebPages
from broker.runtime.ack_coalescer import AckCoalescer
from broker.runtime.company import Company
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.dead_letter_news import DeadLetterNews
from broker.runtime.jitter import Jitter, retry_jitter
from broker.runtime.long_poll import LongPoll
from broker.runtime.loop_turns import LoopTurns
from broker.runtime.loop_watch import watch_loop
from broker.runtime.operation_news import OperationNews, is_operation
from broker.runtime.outstanding import Outstanding
from broker.runtime.publish_rights import allow_any_publisher
from broker.runtime.quotas import BALANCE_SECONDS
from broker.runtime.readers import PASS_SECONDS, Readers
from broker.runtime.readiness import READY_SECONDS, WhileAway, begin_when_there, check_ready
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.retained_bytes import TICK_SECONDS as RETAINED_SECONDS
from broker.runtime.retained_bytes import RetainedBytes
from broker.runtime.running_processes import HEARTBEAT_SECONDS, RunningProcesses
from broker.runtime.scheduled_room import ScheduledRoom
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.shard_heads import ShardHeads
from broker.runtime.storage_alarm import StorageAlarm
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.tails import Tails
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.secrets.secrets import Secrets
from broker.services.acknowledge import AcknowledgeService
from broker.services.acting import ActingServices, make_acting
from broker.services.api_keys import ApiKeyService
from broker.services.audit_logs import AuditLogService
from broker.services.events import EventService
from broker.services.looking import make_looking
from broker.services.operations import OperationService
from broker.services.policies import PolicyService
from broker.services.publish import PublishService
from broker.services.pull import PullService
from broker.services.pushes import PushService
from broker.services.quotas import QuotaService
from broker.services.roles import RoleService
from broker.services.schemas import SchemaService
from broker.services.service_accounts import ServiceAccountService
from broker.services.services import Services
from broker.services.snapshots import SnapshotService
from broker.services.streaming_pull import StreamingPullService
from broker.services.subscriptions import SubscriptionService
from broker.services.topics import TopicService
from broker.services.transforms import TransformService
from broker.store.driver.database import DATABASE, NODES, Database
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.partitions import make_partitions_ahead
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.state_changes import TICK_SECONDS, StateChanges
from broker.workers.periodic import PeriodicWorker
from broker.workers.push.endpoint_news import EndpointNews
from broker.workers.push.oidc_token import TokenSigner
from broker.workers.push.pusher import GRACE_SECONDS, Pusher
from broker.workers.supervisor import Loop, Supervisor, Worker

CLOCK_INTERVAL_SECONDS = 30.0  # two clocks drift apart by less than 3 ms in it
HEADS_INTERVAL_SECONDS = 1.0  # how late a pull or push is if its notification was lost


class Broker:
    """The parts of one process.  The public ones can be driven from outside, as tests that set the time do."""

    def __init__(
        self,
        config: AppConfig,
        *,
        make_clock: Callable[[Database], DatabaseClock] = DatabaseClock,
        jitter: Jitter = retry_jitter,
        counters: Counters | None = None,
        storage: StorageAlarm | None = None,
    ) -> None:
        """All ask the clock of `make_clock` for the time; `jitter` lengthens retry delays; the others: its own."""
        self._config, self.storage = config, storage or StorageAlarm()
        self.states, self.counters, self.company = StateChanges(), counters or Counters(), Company()
        self._database = make_database(config, self.states, self.counters)
        self._clock, attempt_ids = make_clock(self._database), AttemptIds()
        self.looks = make_looks(config, self._database, self.states, self.counters)
        self._secrets, self._tasks, self.loop_turns = Secrets(config.secrets_key_file), Tasks(), LoopTurns()
        self._resources = ResourceCache(self._database, self._tasks, DeadLetterNews(self.states), self.counters)
        most = config.request_memory_mb * 1_000_000
        self.requests, self.answers = RequestMemory(most), AnswerMemory(most)
        self.web_pages = WebPages(hosts=config.hosts, origins=config.origins, states=self.states)
        parts, shared = (self._database, self._clock, self._tasks), (self.loop_turns, self.counters, self.company)
        self._pull_claims, self._push_claims = make_claims(config, *parts, attempt_ids, jitter, *shared)
        self.quotas = make_quotas(config, *parts[:2], self.storage, processes=lambda: self._processes.count())
        self.long_poll, self._processes = self._long_poll(), self._running_processes()
        self._outstanding, self._schemas = Outstanding(*parts[:2]), SchemaChecks(self._resources, self.counters)
        self.readers, self.tails, self._operation_news = Readers(*parts[:2]), Tails(), OperationNews()
        self.retained_bytes = RetainedBytes(self._database, self._clock, self.quotas)
        self.access = make_access(config, self._database, self._secrets, now=self._clock.now, states=self.states)
        self._check_publisher = self.access.agents.check_publisher if self.access else allow_any_publisher
        self._wake_ups = self._make_wake_ups()
        self._activity = SubscriptionActivity(self._database, self._clock, in_use=self._in_use)
        self.records = make_records(config, self._database, self._clock, self.states, self.counters)
        acks = self._acks(attempt_ids, jitter)
        self._signer = TokenSigner(self._database, self._clock, issuer=config.token_issuer, secrets=self._secrets)
        self.transforms, self.pusher = self._transforming(acks), self._pusher(acks)
        self._publishes = make_publishes(config, *parts, self._wake_ups, *shared)
        self.shard_heads = ShardHeads(self._database, watched=self._watched_shards, wake=self.wake)
        self.passes = self._passes(attempt_ids, acks)
        self.services = self._services(acks, attempt_ids)
        self._guard()

    def _passes(self, attempt_ids: AttemptIds, acks: AckCoalescer) -> Passes:
        parts = self._database, self._clock, self._resources, self._wake_ups, self._publishes, self._activity
        more = self._secrets, self.states, self.counters, attempt_ids, self.quotas, self._schemas
        shared = self.transforms.of_topics, self.company, self.loop_turns, acks, self.looks
        passes = Passes(self._config, *parts, *more, *shared, self._check_publisher)
        self._operation_news.wake_runner = passes.operations.wake
        return passes

    def _guard(self) -> None:
        config, states = self._config, self.states
        self.audit_trail = make_audit_trail(config, self._database, now=self._clock.now, states=states)
        self.address_turns = make_address_turns(self.loop_turns)
        self.calls = make_call_log(config, states, excused=self.is_excused, turns=self.address_turns)
        self.gate = make_gate(self.access, self.services.subscriptions.get_subscription)
        self.auditor = make_auditor(self._config, self.audit_trail)

    def _long_poll(self) -> LongPoll:
        parts = self._database, self._clock, self._tasks, self._pull_claims
        return make_long_poll(self._config, *parts, self._resources, self.answers, self.counters)

    def _transforming(self, acks: AckCoalescer) -> Transforming:
        parts = self._tasks, self._clock, acks, self.states, self.counters
        return Transforming(*parts, claims=(self._pull_claims, self._push_claims))

    def _acks(self, attempt_ids: AttemptIds, jitter: Jitter) -> AckCoalescer:
        parts = self._database, self._clock, attempt_ids, self._wake_ups
        used = self._tasks, self._activity, self._outstanding, self.readers
        return make_acks(self._config, *parts, jitter, *used, self.counters, self.company, self.records)

    def _make_wake_ups(self) -> WakeUps:
        return WakeUps(
            self._database,
            wake=self.wake,
            drop=self._drop,
            is_alone=self._processes.is_alone,
            access_changed=self.access.version.changed if self.access is not None else lambda: None,
            committed=lambda: self.passes.relay.committed.set(),
            look=lambda: self.shard_heads.run_once(),
        )

    async def _access_changed(self) -> None:
        """A change of this process's own holds before it is answered."""
        if self.access is not None:
            await self.access.version.look()

    def _running_processes(self) -> RunningProcesses:
        return RunningProcesses(
            self._database,
            self._clock,
            changed=lambda: self.pusher.resource_changed(None),
            look=lambda: self.wake(None, None),
            connections=self.quotas.connections,
            database_connections=self._config.database_connections,
            states=self.states,
        )

    def _services(self, acks: AckCoalescer, attempt_ids: AttemptIds) -> Services:
        database, clock, wake_ups, quotas = self._database, self._clock, self._wake_ups, self.quotas
        changed, checks = self._access_changed, self._schemas
        can, shards, url = self.transforms.checks, self._config.shards_per_topic, self._config.address
        told = self._check_publisher, self.answers.has_room
        looking = self.looks, clock, self.tails, self.records, self.counters, *told
        return Services(
            loop_turns=self.loop_turns,
            topics=(topics := TopicService(database, clock, wake_ups, quotas, can, shards_per_topic=shards)),
            subscriptions=(subscriptions := self._subscription_service()),
            snapshots=(snapshots := SnapshotService(database, clock, self._activity, quotas)),
            schemas=(schemas := SchemaService(database, clock, wake_ups, checks, quotas)),
            publish=(publish := self._publish_service()),
            pull=self._pull_service(),
            streaming_pull=self._streaming_pull_service(),
            acknowledge=AcknowledgeService(self._resources, quotas, acks, self._activity),
            looking=make_looking(database, *looking),
            pushes=PushService(database, clock, self.pusher),
            service_accounts=(accounts := ServiceAccountService(database, clock, changed=changed, base_url=url)),
            api_keys=ApiKeyService(database, clock, changed=changed),
            audit_logs=AuditLogService(database),
            quotas=QuotaService(database, clock, quotas, self.retained_bytes, wake_ups),
            roles=RoleService(database, changed=changed),
            events=EventService(database, clock),
            transforms=TransformService(database, clock, can, self.transforms.trials),
            operations=(operations := self._operation_service()),
            acting=self._acting(attempt_ids, operations, publish),
            policies=PolicyService(
                database,
                self.access.authorizer if self.access is not None else None,
                changed=changed,
                topics=topics,
                subscriptions=subscriptions,
                snapshots=snapshots,
                schemas=schemas,
                service_accounts=accounts,
            ),
        )

    def _publish_service(self) -> PublishService:
        parts = self._resources, self.quotas, self._publishes, self._schemas, self.transforms.of_topics
        room = ScheduledRoom(self._database, self._config.max_scheduled_messages, self._processes.count)
        return PublishService(*parts, self.counters, self._clock, self.passes.next_due, room)

    def _subscription_service(self) -> SubscriptionService:
        parts = self._database, self._clock, self._wake_ups, self.quotas, self.transforms.checks
        return SubscriptionService(
            *(*parts, DeadLetterNews(self.states)),
            secrets=self._secrets,
            min_delivery_attempts=self._config.min_delivery_attempts,
            only_own_accounts=self.access is not None,
        )

    def _acting(self, ids: AttemptIds, operations: OperationService, publish: PublishService) -> ActingServices:
        parts = self._database, self._clock, self._wake_ups, ids, self._activity, self.quotas, self.states
        more = self._resources, self._schemas, self.counters, *self.passes.told
        return make_acting(*parts, operations, publish, *more, allows_reset=self._config.allow_reset)

    def _operation_service(self) -> OperationService:
        parts = self._database, self._clock, self._wake_ups, self._operation_news, self.counters
        return OperationService(*parts, at_once=self._config.operations_at_once)

    def _pull_service(self) -> PullService:
        parts = self._resources, self.quotas, self.long_poll, self._activity, self.readers
        return PullService(*parts, wait_seconds=self._config.pull_wait_seconds)

    def _streaming_pull_service(self) -> StreamingPullService:
        shared = self._resources, self.quotas, self.long_poll, self._outstanding, self._activity
        return StreamingPullService(*shared, self._tasks, self.readers, self.counters)

    def _pusher(self, acks: AckCoalescer) -> Pusher:
        return Pusher(
            self._database,
            self._clock,
            self._push_claims,
            acks,
            self._wake_ups,
            self._tasks,
            self._signer,
            EndpointNews(self.states, DeadLetterNews(self.states), excused=self._is_away),
            access=self.access,
            secrets=self._secrets,
            owns=self._processes.owns,
            make_client=partial(make_push_client, self._config),
            counters=self.counters,
            failing_after=self._config.push_failing_after,
        )

    def well_known_routes(self) -> list[Route]:
        """Where receivers of pushes find the keys of their tokens."""
        issuer, keys = self._config.token_issuer, self._signer.published_keys
        return well_known_routes(keys, issuer=issuer, is_configured=bool(self._config.issuer))

    def wake(self, shard_id: int | None, subscription_id: int | None = None) -> None:
        """Something can be claimed in a shard, or of a subscription; neither given: anywhere."""
        self._pull_claims.wake(shard_id, subscription_id)
        self._push_claims.wake(shard_id, subscription_id)
        if subscription_id is None:
            self.tails.wake(shard_id)

    def _is_away(self) -> bool:
        return self.states.lasts(*DATABASE) or self.states.lasts(*NODES)

    def is_excused(self) -> bool:
        """Whether calls are refused for a reason that the log has: the database is away, or the broker stops."""
        return self._is_away() or self.long_poll.is_stopping

    def _in_use(self) -> set[int]:
        return {*self.long_poll.waited_for(), *self._outstanding.subscriptions()}

    def _watched_shards(self) -> set[int]:
        watching = self._pull_claims, self._push_claims, self.tails
        return {shard_id for each in watching for shard_id in each.watched_shards()}

    def _drop(self, name: str | None) -> None:
        self._operation_news.changed(name)
        if name is not None and is_operation(name):
            return
        self._resources.drop(name)
        self.quotas.changed(name)
        self.long_poll.subscription_changed(name)
        self.tails.changed(name)
        self._outstanding.notify()
        self.pusher.resource_changed(name)

    def stop_waiting(self) -> None:
        """Answer the pulls that wait, and let no other wait: the process is about to stop."""
        self.long_poll.stop_waiting()
        self.tails.stop()

    async def check_ready(self) -> None:
        """Raises a BrokerError unless a publish, a pull and an ack would find a database that they can use."""
        await check_ready(self._database, self.storage)

    @asynccontextmanager
    async def running(self, while_away: WhileAway = contextlib.nullcontext) -> AsyncIterator[None]:
        """`while_away()` is entered for as long as the start waits for the database."""
        try:
            await begin_when_there(self._begin, self._database, self.states, while_away)
            self.pusher.start()
            supervisor = Supervisor(self._workers(), self.states, excused=self._is_away)
            await supervisor.start()
            try:
                yield
            finally:
                self.long_poll.stop_waiting()
                with contextlib.suppress(TimeoutError):  # the database may be gone already
                    async with asyncio.timeout(READY_SECONDS):
                        await self._push_claims.stop()
                await supervisor.stop()
                self.passes.dead_letter_forwarder.tell()
                await self._finish_pushes()
                await self._tasks.close()
                await self._schemas.close()
                await self.transforms.sandboxes.close()
                if self.audit_trail is not None:
                    await self.audit_trail.close()
                await self._write_what_is_left()
        finally:
            # Also after a failed start: the pool's tasks do not end by being cancelled, and would keep the process.
            await self.looks.close()
            await self._database.close()

    async def _begin(self) -> None:
        await self._clock.synchronise()
        async with self._database.connection() as connection:
            await make_partitions_ahead(connection, now=self._clock.now())
        await self._processes.run_once()
        await self.passes.secret_keeper.run_once()
        await self._signer.refresh()
        await self.quotas.load()
        await self.passes.table_sizes.run_once()
        if self.access is not None:
            await self.access.start()

    async def _finish_pushes(self) -> None:
        with contextlib.suppress(BrokerError, TimeoutError):  # the database may be gone already
            async with asyncio.timeout(READY_SECONDS + GRACE_SECONDS):
                await self.pusher.stop()
                await self._processes.leave()
                await self.readers.leave()

    async def _write_what_is_left(self) -> None:
        with contextlib.suppress(BrokerError, TimeoutError):  # the database may be gone already
            async with asyncio.timeout(READY_SECONDS):
                await self.records.flush()
                await self._activity.record()

    def _workers(self) -> dict[str, Worker]:
        return {
            "notification listener": Loop(partial(self._wake_ups.run_listener, self.states)),
            "notification sender": Loop(self._wake_ups.run_sender),
            "processes": PeriodicWorker(self._processes.run_once, HEARTBEAT_SECONDS),
            "clock": PeriodicWorker(self._clock.synchronise, CLOCK_INTERVAL_SECONDS),
            "heads": PeriodicWorker(self.shard_heads.run_once, HEADS_INTERVAL_SECONDS),
            "activity": PeriodicWorker(self._activity.record, RECORD_INTERVAL.total_seconds()),
            "records of deliveries": Loop(self.records.run),
            "readers": PeriodicWorker(self.readers.run_once, PASS_SECONDS),
            "quotas": PeriodicWorker(self.quotas.balance, BALANCE_SECONDS),
            "retained bytes": PeriodicWorker(self.retained_bytes.run_once, RETAINED_SECONDS),
            **self.pusher.workers(),
            **guard_workers(self.access, self.audit_trail),
            "event loop": Loop(partial(watch_loop, self.counters)),
            "log": PeriodicWorker(self.states.run_once, TICK_SECONDS),
            **self.passes.workers(),
        }
