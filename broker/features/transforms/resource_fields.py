"""Validates the transforms of a topic or a subscription when they change."""

from broker.core.resources.resource_field import ResourceField
from broker.features.transforms.topic_transforms import TransformChecks
from broker.model.subscription import Subscription
from broker.model.topic import Topic

_PATH = "message_transforms"


def topic_field(checks: TransformChecks) -> ResourceField[Topic]:
    """Compile the transforms of a topic."""

    async def check(topic: Topic) -> None:
        await checks.check(topic.name, topic.transforms)

    return ResourceField(path=_PATH, check=check)


def subscription_field(checks: TransformChecks) -> ResourceField[Subscription]:
    """Compile the transforms of a subscription."""

    async def check(subscription: Subscription) -> None:
        await checks.check(subscription.name, subscription.transforms)

    return ResourceField(path=_PATH, check=check)
