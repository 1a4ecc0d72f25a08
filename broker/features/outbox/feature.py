"""Registers the outbox: messages and acks that applications commit in transactions of their own."""

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation
from broker.features.feature import Feature
from broker.features.outbox.ack_relay import AckRelay
from broker.features.outbox.message_relay import MessageRelay
from broker.features.outbox.relay import Relay
from broker.features.outbox.rows import delete_refused_messages
from broker.features.outbox.worker import RelayWorker


def register(core: Core, *, preparation: Preparation, next_due: NextDue, acks: AckCoalescer) -> Feature:
    """`next_due` is told of the times of delayed messages."""
    relay = Relay(core, MessageRelay(core, preparation, next_due), AckRelay(core, acks))
    return Feature(
        workers={"relay": RelayWorker(relay)},
        clean_ups=[delete_refused_messages],
        outbox_committed=relay.committed.set,
    )
