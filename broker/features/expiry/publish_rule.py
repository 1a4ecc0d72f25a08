"""The publish rule of expiry."""

from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule
from broker.features.expiry.expiry import times_to_live
from broker.model.publish_property import PublishProperty


async def _limit(draft: Draft, _: Rule) -> None:
    draft.packing.ttls = times_to_live(draft.packing.messages)


PUBLISH_RULE = PublishRule(PublishProperty.EXPIRY, _limit)
