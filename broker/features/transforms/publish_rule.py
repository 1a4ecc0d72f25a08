"""The publish rule of transforms of topics."""

from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule
from broker.features.transforms.topic_transforms import TopicTransforms
from broker.model.publish_limits import check_messages
from broker.model.publish_property import PublishProperty


def transform_rule(transforms: TopicTransforms) -> PublishRule:
    """Transform messages; limits hold for what is stored, too."""

    async def transform(draft: Draft, _: Rule) -> None:
        draft.packing.replace(await transforms.publish(draft.topic, draft.sent))
        stored = draft.packing.stored
        if stored and draft.rules.message_limits is Rule.APPLIES:
            check_messages(stored)

    return PublishRule(PublishProperty.TRANSFORMS, transform)
