"""Builds the services, which give each call its meaning; REST and gRPC share them."""

from broker.app.acting import make_acting
from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.jobs import Jobs
from broker.app.looking import make_looking
from broker.app.messages import Messages
from broker.app.service_types import Services
from broker.core.acking.service import AcknowledgeService
from broker.core.backlog.seeking.snapshot_service import SnapshotService
from broker.core.context.core import Core
from broker.core.publishing.service import PublishService
from broker.core.pulling.pull_service import PullService
from broker.core.pulling.stream_service import StreamingPullService
from broker.core.pushing.pusher import Pusher
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.resources.topic_service import TopicService
from broker.db.driver.replica_reads import Looks
from broker.fairness.resource_turns import HasRoom
from broker.features.audit.service import AuditLogService
from broker.features.events.service import EventService
from broker.features.iam.account_service import ServiceAccountService
from broker.features.iam.api_key_service import ApiKeyService
from broker.features.iam.policy_service import PolicyService
from broker.features.iam.role_service import RoleService
from broker.features.operations.service import OperationService
from broker.features.projects.service import ProjectService
from broker.features.push_status.service import PushService
from broker.features.quotas.service import QuotaService
from broker.features.schemas.service import SchemaService
from broker.features.transforms.service import TransformService


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
    authorizer = None if guard.access is None else guard.access.authorizer
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
            authorizer,
            clock=clock,
            changed=changed,
            topics=topics,
            subscriptions=subscriptions,
            snapshots=snapshots,
            schemas=schemas,
            service_accounts=service_accounts,
        ),
        projects=ProjectService(database, authorizer),
    )
