"""The publish rule of deduplication."""

from broker.core.log.messages import Identified
from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule
from broker.features.deduplication.identities import append_new
from broker.features.deduplication.identity import identities
from broker.model.publish_property import PublishProperty


async def _identify(draft: Draft, rule: Rule) -> None:
    """Identify messages as they were sent.  Repeats that are published at the same time meet in one shard."""
    topic, known = draft.topic, draft.topic.extensions.deduplication
    assert known is not None
    digests = identities(draft.sent, known)
    if digests is None or rule is not Rule.APPLIES:
        return
    draft.packing.identified = Identified(digests, known.window, append_new)
    if len(topic.plain_shard_ids) > 1:
        draft.put_in(
            [
                None if digest is None or message.ordering_key else topic.shard_of(digest.hex())
                for message, digest in zip(draft.sent, digests, strict=True)
            ]
        )


PUBLISH_RULE = PublishRule(PublishProperty.DEDUPLICATION, _identify)
