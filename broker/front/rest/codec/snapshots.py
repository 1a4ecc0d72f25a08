"""Snapshots, seeks and positions on the wire."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from broker.domain.durations import format_duration
from broker.domain.field_mask import parse_field_mask
from broker.domain.position import Position
from broker.domain.refusals import refuse_unsupported
from broker.domain.replay import Replay
from broker.domain.snapshot import UNSUPPORTED_FIELDS, Snapshot
from broker.domain.subscription import Subscription
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request
from broker.front.rest.codec.resources import given_fields, require_same_name
from broker.front.rest.codec.scalars import parse_timestamp


class CreateSnapshotBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str = ""
    subscription: str = ""
    labels: dict[str, str] = {}
    tags: dict[str, str] = {}


class SnapshotBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """google.pubsub.v1.Snapshot; `topic` never changes."""

    name: str = ""
    topic: object = None
    expire_time: str = ""
    labels: dict[str, str] = {}


class UpdateSnapshotBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    snapshot: SnapshotBody = msgspec.field(default_factory=SnapshotBody)
    update_mask: str = ""


class SeekBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    time: str = ""
    snapshot: str = ""
    subscription: object = None  # in the path


class SnapshotUpdate(msgspec.Struct):
    """The masked fields of an update."""

    labels: Mapping[str, str]
    expire_time: datetime | None
    paths: Sequence[str]


_create = msgspec.json.Decoder(CreateSnapshotBody)
_update = msgspec.json.Decoder(UpdateSnapshotBody)
_seek = msgspec.json.Decoder(SeekBody)


def decode_create_snapshot(body: bytes, name: str) -> CreateSnapshotBody:
    """Raises InvalidArgument."""
    request = decode_request(_create, body)
    refuse_unsupported(given_fields(request), UNSUPPORTED_FIELDS)
    require_same_name(request.name, name)
    return request


def decode_update_snapshot(body: bytes, name: str, query_mask: str | None) -> SnapshotUpdate:
    """Raises InvalidArgument."""
    request = decode_request(_update, body)
    require_same_name(request.snapshot.name, name)
    expire_time = request.snapshot.expire_time
    return SnapshotUpdate(
        labels=request.snapshot.labels,
        expire_time=parse_timestamp(expire_time, "snapshot.expireTime") if expire_time else None,
        paths=parse_field_mask(request.update_mask or query_mask or ""),
    )


def decode_seek(body: bytes) -> tuple[datetime | None, str]:
    """The time and the snapshot's name to seek to; None or "" for what is not given.  Raises InvalidArgument."""
    request = decode_request(_seek, body)
    return parse_timestamp(request.time, "time") if request.time else None, request.snapshot


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """google.pubsub.v1.Snapshot in JSON; defaults are left out."""
    body: dict[str, Any] = {
        "name": snapshot.name,
        "topic": snapshot.topic,
        "expireTime": format_timestamp(snapshot.expire_time),
    }
    return body | ({"labels": snapshot.labels} if snapshot.labels else {})


def replay_json(replay: Replay) -> dict[str, Any]:
    """What a seek has brought about: an extension; Google's SeekResponse is empty."""
    body: dict[str, Any] = {"replayedMessages": replay.messages}
    if replay.at_least:
        body["replayedMessagesAtLeast"] = True
    if replay.retained_since is not None:
        body["retainedSince"] = format_timestamp(replay.retained_since)
    return body | ({"notRetained": replay.not_retained} if replay.not_retained else {})


def positions_json(subscription: Subscription, positions: Sequence[Position], now: datetime) -> dict[str, Any]:
    """Where a subscription stands: an extension, read by operators."""
    estimated = any(p.is_estimated for p in positions)
    outstanding = [p.oldest_outstanding for p in positions if p.oldest_outstanding is not None]
    unclaimed = [p.oldest_unclaimed for p in positions if p.oldest_unclaimed is not None]
    return {
        "subscription": subscription.name,
        "topic": subscription.topic,
        "undeliveredMessages": sum(p.undelivered for p in positions),
        **({"undeliveredMessagesEstimated": True} if estimated else {}),
        **_age("oldestUndeliveredMessageAge", outstanding + unclaimed, now),
        **_age("oldestOutstandingMessageAge", outstanding, now),
        "shards": [
            {
                "shardId": p.shard_id,
                "headSequence": p.head,
                "nextSequence": p.next_seq,
                "nextPublishTime": format_timestamp(p.next_publish_time),
                "outstandingMessages": p.outstanding,
            }
            for p in positions
        ],
    }


def _age(field: str, publish_times: Sequence[datetime], now: datetime) -> dict[str, str]:
    """Of the oldest; nothing if there is none."""
    if not publish_times:
        return {}
    return {field: format_duration(max(now - min(publish_times), timedelta(0)))}
