"""Snapshots as google.pubsub.v1.Snapshot."""

from typing import Any

from broker.domain.snapshot import Snapshot
from broker.front.grpc.codec.requests import from_datetime
from broker.front.grpc.generated import messages


def snapshot_message(snapshot: Snapshot) -> Any:
    return messages.Snapshot(
        name=snapshot.name,
        topic=snapshot.topic,
        expire_time=from_datetime(snapshot.expire_time),
        labels=snapshot.labels,
    )
