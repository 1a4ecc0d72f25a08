"""Snapshots as google.pubsub.v1.Snapshot."""

from typing import Any

from broker.domain.replay import Replay
from broker.domain.snapshot import Snapshot
from broker.domain.timestamps import format_timestamp
from broker.front.generated import messages
from broker.front.resources.times import from_datetime


def snapshot_message(snapshot: Snapshot) -> Any:
    return messages.Snapshot(
        name=snapshot.name,
        topic=snapshot.topic,
        expire_time=from_datetime(snapshot.expire_time),
        labels=snapshot.labels,
    )


def replay_trailers(replay: Replay) -> list[tuple[bytes, bytes]]:
    """What a seek has brought about, as metadata behind the answer: Google's SeekResponse has no place for it."""
    trailers = [(b"broker-replayed-messages", str(replay.messages).encode())]
    if replay.at_least:
        trailers.append((b"broker-replayed-messages-at-least", b"true"))
    if replay.retained_since is not None:
        trailers.append((b"broker-retained-since", format_timestamp(replay.retained_since).encode()))
    if replay.not_retained:
        trailers.append((b"broker-not-retained", replay.not_retained.encode()))
    return trailers
