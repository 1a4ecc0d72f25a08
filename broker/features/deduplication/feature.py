"""Registers deduplication: its publish rule, and the clean-up of old identities."""

from broker.features.deduplication.identities import drop_identities_behind
from broker.features.deduplication.publish_rule import PUBLISH_RULE
from broker.features.feature import Feature


def register() -> Feature:
    return Feature(publish_rules=[PUBLISH_RULE], clean_ups=[drop_identities_behind])
