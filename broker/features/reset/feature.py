"""Registers the call that resets a project."""

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.reset.rpcs import make_rpcs
from broker.features.reset.service import ResetService


def register(core: Core, *, allowed: bool) -> Feature:
    return Feature(rpcs=make_rpcs(ResetService(core, allowed=allowed)))
