"""Registers the publish rule of messages that expire."""

from broker.features.expiry.publish_rule import PUBLISH_RULE
from broker.features.feature import Feature


def register() -> Feature:
    return Feature(publish_rules=[PUBLISH_RULE])
