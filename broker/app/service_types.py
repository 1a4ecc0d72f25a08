"""The services that the doors call, in one value."""

from dataclasses import dataclass

from broker.app.acting import ActingServices
from broker.app.looking import LookingServices
from broker.core.acking.service import AcknowledgeService
from broker.core.backlog.seeking.snapshot_service import SnapshotService
from broker.core.publishing.service import PublishService
from broker.core.pulling.pull_service import PullService
from broker.core.pulling.stream_service import StreamingPullService
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.resources.topic_service import TopicService
from broker.fairness.loop_turns import LoopTurns
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """`loop_turns`: what the doors ask before they do what takes the event loop for long."""

    loop_turns: LoopTurns
    topics: TopicService
    subscriptions: SubscriptionService
    snapshots: SnapshotService
    schemas: SchemaService
    publish: PublishService
    pull: PullService
    streaming_pull: StreamingPullService
    acknowledge: AcknowledgeService
    looking: LookingServices
    acting: ActingServices
    pushes: PushService
    service_accounts: ServiceAccountService
    api_keys: ApiKeyService
    policies: PolicyService
    projects: ProjectService
    roles: RoleService
    audit_logs: AuditLogService
    quotas: QuotaService
    events: EventService
    transforms: TransformService
    operations: OperationService
