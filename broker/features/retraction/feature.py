"""Registers the calls that retract and replace messages."""

from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation
from broker.features.feature import Feature
from broker.features.retraction.rows import delete_retractions
from broker.features.retraction.rpcs import make_rpcs
from broker.features.retraction.service import RetractionService


def register(core: Core, *, preparation: Preparation, next_due: NextDue) -> Feature:
    """Registers the feature.  `next_due` receives the times at which delayed messages are due."""
    return Feature(rpcs=make_rpcs(RetractionService(core, preparation, next_due)), clean_ups=[delete_retractions])
