"""Registers the call that follows the journal of a subscription."""

from broker.core.context.core import Core
from broker.core.process.tails import Tails
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.journal.rpcs import make_rpcs
from broker.features.journal.service import JournalTailService


def register(core: Core, *, turns: ResourceTurns, tails: Tails) -> Feature:
    return Feature(rpcs=make_rpcs(JournalTailService(core.database, turns, tails)))
