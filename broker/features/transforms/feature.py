"""Registers transforms: the calls that validate and test them, and the code that applies them to messages."""

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.transforms.delivery_transforms import DeliveryTransforms
from broker.features.transforms.publish_rule import transform_rule
from broker.features.transforms.resource_fields import subscription_field, topic_field
from broker.features.transforms.rpcs import make_rpcs
from broker.features.transforms.sandboxes import Sandboxes
from broker.features.transforms.service import TransformService
from broker.features.transforms.topic_transforms import Programs, TopicTransforms, TransformChecks, TransformTrials


def register(core: Core, *, acks: AckCoalescer) -> Feature:
    """`acks` acknowledges the messages that transforms of subscriptions drop."""
    programs, sandboxes = Programs(), Sandboxes(core.tasks, core.counters)
    checks, trials = TransformChecks(sandboxes), TransformTrials(sandboxes, programs)
    of_topics = TopicTransforms(sandboxes, programs, core.clock, core.counters)
    return Feature(
        rpcs=make_rpcs(TransformService(core.database, core.clock, checks, trials)),
        publish_rules=[transform_rule(of_topics)],
        topic_fields=[topic_field(checks)],
        subscription_fields=[subscription_field(checks)],
        answer_hook=DeliveryTransforms(sandboxes, programs, acks, core.states, core.counters),
        close=sandboxes.close,
    )
