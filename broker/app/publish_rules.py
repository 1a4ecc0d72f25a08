"""The publish rules of the features."""

from broker.core.context.core import Core
from broker.core.publishing.publish_rule import PublishRule
from broker.features.deduplication import publish_rule as deduplication
from broker.features.delayed.publish_rule import delay_rule
from broker.features.delayed.scheduled_capacity import ScheduledCapacity
from broker.features.expiry import publish_rule as expiry
from broker.features.priorities import publish_rule as priorities
from broker.features.schemas.publish_rule import schema_rule
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.transforms.publish_rule import transform_rule
from broker.features.transforms.topic_transforms import TopicTransforms


def make_publish_rules(
    core: Core, *, schemas: SchemaChecks, transforms: TopicTransforms, max_scheduled_messages: int
) -> tuple[PublishRule, ...]:
    """Return all publish rules.  `max_scheduled_messages` may wait in a topic."""
    available = ScheduledCapacity(core.database, max_scheduled_messages, core.processes.count)
    return (
        deduplication.PUBLISH_RULE,
        transform_rule(transforms),
        schema_rule(schemas),
        delay_rule(core.clock, available),
        expiry.PUBLISH_RULE,
        priorities.PUBLISH_RULE,
    )
