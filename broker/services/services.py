"""The services that the doors call, in one value."""

from dataclasses import dataclass

from broker.runtime.loop_turns import LoopTurns
from broker.services.acknowledge import AcknowledgeService
from broker.services.acting import ActingServices
from broker.services.api_keys import ApiKeyService
from broker.services.audit_logs import AuditLogService
from broker.services.events import EventService
from broker.services.looking import LookingServices
from broker.services.operations import OperationService
from broker.services.policies import PolicyService
from broker.services.publish import PublishService
from broker.services.pull import PullService
from broker.services.pushes import PushService
from broker.services.quotas import QuotaService
from broker.services.roles import RoleService
from broker.services.schemas import SchemaService
from broker.services.service_accounts import ServiceAccountService
from broker.services.snapshots import SnapshotService
from broker.services.streaming_pull import StreamingPullService
from broker.services.subscriptions import SubscriptionService
from broker.services.topics import TopicService
from broker.services.transforms import TransformService


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
    roles: RoleService
    audit_logs: AuditLogService
    quotas: QuotaService
    events: EventService
    transforms: TransformService
    operations: OperationService
