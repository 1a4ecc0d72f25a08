"""Registers the calls that validate and test message transforms."""

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.transforms.rpcs import make_rpcs
from broker.features.transforms.service import TransformService
from broker.features.transforms.topic_transforms import TransformChecks, TransformTrials


def register(core: Core, *, checks: TransformChecks, trials: TransformTrials) -> Feature:
    return Feature(rpcs=make_rpcs(TransformService(core.database, core.clock, checks, trials)))
