"""Builds the services, which give each call its meaning; REST and gRPC share them."""

from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.jobs import Jobs
from broker.app.messages import Messages
from broker.runtime.core import Core
from broker.runtime.looks import Looks
from broker.runtime.resource_turns import HasRoom
from broker.services.acknowledge import AcknowledgeService
from broker.services.acting import make_acting
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
from broker.workers.push.pusher import Pusher


def make_services(
    config: AppConfig,
    core: Core,
    *,
    guard: Guard,
    messages: Messages,
    pusher: Pusher,
    jobs: Jobs,
    looks: Looks,
    has_room: HasRoom,
) -> Services:
    """`looks` serves the inspection calls.  `has_room` tells whether a project may have more answers in memory."""
    claiming, acking = messages.claiming, messages.acking
    transforming, publishing = messages.transforming, messages.publishing
    database, clock, changed = core.database, core.clock, guard.access_changed
    topics = TopicService(core, transforming.checks, shards_per_topic=config.shards_per_topic)
    subscriptions = SubscriptionService(
        core,
        transforming.checks,
        secrets=guard.secrets,
        min_delivery_attempts=config.min_delivery_attempts,
        only_own_accounts=guard.access is not None,
    )
    snapshots = SnapshotService(core, claiming.activity)
    schemas = SchemaService(core, publishing.schemas)
    service_accounts = ServiceAccountService(database, clock, changed=changed, base_url=config.address)
    publish = PublishService(
        core,
        publishing.coalescer,
        publishing.preparation,
        next_due=jobs.next_due,
    )
    operations = OperationService(core, jobs.operation_news, at_once=config.operations_at_once)
    return Services(
        loop_turns=core.loop_turns,
        # --- messages
        publish=publish,
        pull=PullService(
            core,
            claiming.long_poll,
            claiming.activity,
            claiming.readers,
            wait_seconds=config.pull_wait_seconds,
        ),
        streaming_pull=StreamingPullService(
            core,
            long_poll=claiming.long_poll,
            outstanding=claiming.outstanding,
            activity=claiming.activity,
            readers=claiming.readers,
        ),
        acknowledge=AcknowledgeService(core, acking.coalescer, claiming.activity),
        # --- resources
        topics=topics,
        subscriptions=subscriptions,
        snapshots=snapshots,
        schemas=schemas,
        pushes=PushService(database, clock, pusher),
        transforms=TransformService(database, clock, transforming.checks, transforming.trials),
        # --- what operators read and do
        looking=make_looking(
            core,
            looks,
            tails=claiming.tails,
            records=acking.records,
            check_publisher=guard.check_publisher,
            has_room=has_room,
        ),
        acting=make_acting(
            core,
            activity=claiming.activity,
            operations=operations,
            preparation=publishing.preparation,
            next_due=jobs.next_due,
            ticker=jobs.ticker,
            next_tick=jobs.next_tick,
            allows_reset=config.allow_reset,
        ),
        operations=operations,
        events=EventService(database, clock),
        quotas=QuotaService(core, jobs.retained_bytes),
        # --- access
        service_accounts=service_accounts,
        api_keys=ApiKeyService(database, clock, changed=changed),
        roles=RoleService(database, changed=changed),
        audit_logs=AuditLogService(database),
        policies=PolicyService(
            database,
            guard.access.authorizer if guard.access is not None else None,
            changed=changed,
            topics=topics,
            subscriptions=subscriptions,
            snapshots=snapshots,
            schemas=schemas,
            service_accounts=service_accounts,
        ),
    )
