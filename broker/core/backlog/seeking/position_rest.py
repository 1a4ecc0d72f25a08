"""Reading the position of a subscription, and the changes of a seek; extensions."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.seeking.position import Position
from broker.core.backlog.seeking.replay import Replay, Undo
from broker.core.backlog.seeking.snapshot_service import SnapshotService
from broker.core.resources.pause_rest import pause_json
from broker.model.durations import format_duration
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp


async def get_position(service: SnapshotService, call: Call) -> bytes:
    return encode_resource(positions_json(*await service.positions(call.name)))


# --- JSON ---------------------------------------------------------------------------------------------------


def replay_json(replay: Replay) -> dict[str, Any]:
    """Returns the effects of a seek as JSON: an extension, since Google's SeekResponse is empty."""
    body: dict[str, Any] = {"replayedMessages": replay.messages}
    if replay.at_least:
        body["replayedMessagesAtLeast"] = True
    if replay.retained_since is not None:
        body["retainedSince"] = format_timestamp(replay.retained_since)
    if replay.not_retained:
        body["notRetained"] = replay.not_retained
    return body | undo_json(replay.undo)


def undo_json(undo: Undo | None) -> dict[str, str]:
    """Returns the fields that say how a seek or a purge can be undone."""
    return {} if undo is None else {"undoSnapshot": undo.snapshot, "undoUntil": format_timestamp(undo.until)}


def positions_json(subscription: Subscription, positions: Sequence[Position], now: datetime) -> dict[str, Any]:
    """Returns the positions of a subscription as JSON: an extension, read by operators."""
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
        **({} if subscription.pause is None else {"paused": True, **pause_json(subscription.pause)}),
    }


def _age(field: str, publish_times: Sequence[datetime], now: datetime) -> dict[str, str]:
    """Returns the age of the oldest of the publish times as a field; no field without publish times."""
    if not publish_times:
        return {}
    return {field: format_duration(max(now - min(publish_times), timedelta(0)))}
