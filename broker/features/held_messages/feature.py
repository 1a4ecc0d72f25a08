"""Registers the calls that release and dead-letter single messages."""

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.held_messages.rpcs import make_rpcs
from broker.features.held_messages.service import HeldMessageService


def register(core: Core, *, acks: AckCoalescer) -> Feature:
    return Feature(rpcs=make_rpcs(HeldMessageService(core, acks)))
