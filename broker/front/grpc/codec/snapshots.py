"""Snapshots as google.pubsub.v1.Snapshot."""

from typing import Any

from broker.domain.snapshot import Snapshot
from broker.front.generated import messages
from broker.front.grpc.codec.requests import from_datetime


def snapshot_message(snapshot: Snapshot) -> Any:
    return messages.Snapshot(
        name=snapshot.name,
        topic=snapshot.topic,
        expire_time=from_datetime(snapshot.expire_time),
        labels=snapshot.labels,
    )
