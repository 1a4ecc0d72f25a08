"""The publish rule of priorities."""

from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule
from broker.features.priorities.priority import level_of, levels_of
from broker.model.publish_property import PublishProperty


async def _sort(draft: Draft, rule: Rule) -> None:
    """Put urgent messages into the shards of their levels."""
    topic, known, messages = draft.topic, draft.topic.extensions.priorities, draft.packing.messages
    assert known is not None
    if rule is Rule.APPLIES:
        levels = levels_of(messages, known)
        if levels is not None:
            draft.put_in([topic.urgent_shard(level) for level in levels])
        return
    found = [None if each is None else level_of(each.attributes, each.ordering_key, known) for each in messages]
    draft.put_in([topic.urgent_shard(level) for level in found])


PUBLISH_RULE = PublishRule(PublishProperty.PRIORITY, _sort)
