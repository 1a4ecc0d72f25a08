"""Registers resending messages."""

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.resend.rpcs import make_rpcs
from broker.features.resend.service import ResendService


def register(core: Core) -> Feature:
    return Feature(rpcs=make_rpcs(ResendService(core)))
