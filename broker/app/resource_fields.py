"""The fields of topics and subscriptions that features understand."""

from broker.core.resources.resource_field import ResourceField
from broker.features.schemas.topic_field import TOPIC_FIELD
from broker.features.transforms import resource_fields as transforms
from broker.features.transforms.topic_transforms import TransformChecks
from broker.model.subscription import Subscription
from broker.model.topic import Topic


def topic_fields(checks: TransformChecks) -> tuple[ResourceField[Topic], ...]:
    """Return those of topics.  `checks` are of transforms."""
    return (transforms.topic_field(checks), TOPIC_FIELD)


def subscription_fields(checks: TransformChecks) -> tuple[ResourceField[Subscription], ...]:
    """Return those of subscriptions.  `checks` are of transforms."""
    return (transforms.subscription_field(checks),)
