"""Registers the clean-up of deduplication."""

from broker.features.deduplication.identities import drop_identities_behind
from broker.features.feature import Feature


def register() -> Feature:
    return Feature(clean_ups=[drop_identities_behind])
