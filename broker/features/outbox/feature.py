"""Registers the outbox: messages and acks that applications commit in transactions of their own."""

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation
from broker.features.feature import Feature
from broker.features.outbox.acknowledger import OutboxAcknowledger
from broker.features.outbox.message_publisher import OutboxPublisher
from broker.features.outbox.outbox_relay import OutboxRelay
from broker.features.outbox.rows import delete_refused_messages
from broker.features.outbox.worker import OutboxWorker


def register(core: Core, *, preparation: Preparation, next_due: NextDue, acks: AckCoalescer) -> Feature:
    """`next_due` receives the times at which delayed messages are due."""
    relay = OutboxRelay(core, OutboxPublisher(core, preparation, next_due), OutboxAcknowledger(core, acks))
    return Feature(
        workers={"relay": OutboxWorker(relay)},
        clean_ups=[delete_refused_messages],
        outbox_committed=relay.committed.set,
    )
