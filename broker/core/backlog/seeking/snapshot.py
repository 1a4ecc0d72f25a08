"""A snapshot: the messages that a subscription had not acknowledged at one moment, and all later ones (A9)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.resource_limits import check_labels

MAX_LIFE = timedelta(days=7)  # Google's spec
MIN_LIFE = timedelta(hours=1)  # one that would live shorter is refused
UNDO_FOR = timedelta(hours=1)  # the life of the snapshot by which a seek or purge can be undone

MUTABLE_FIELDS = {"labels", "expire_time"}
IMMUTABLE_FIELDS = {"name", "topic", "tags"}
UNSUPPORTED_FIELDS = {"tags": "there is no resource manager to hold tags"}  # refused when set, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot as stored.  `topic` is the topic's full name, or `_deleted-topic_`.

    One that an update wants has no ids and no `created_at`.
    """

    snapshot_id: int = 0
    name: str
    topic: str
    topic_id: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    expire_time: datetime
    created_at: datetime | None = None

    def updated(self, wanted: "Snapshot", fields: Collection[str]) -> "Snapshot":
        """Returns this snapshot with the given fields of `wanted`, as a mask names them."""
        return replace(self, **{field: getattr(wanted, field) for field in MUTABLE_FIELDS.intersection(fields)})


def first_expire_time(now: datetime, oldest: datetime | None) -> datetime:
    """7 days after the `oldest` message not acked, or from now; FailedPrecondition if that is within the hour."""
    expire_time = (now if oldest is None else min(oldest, now)) + MAX_LIFE
    if expire_time - now < MIN_LIFE:
        raise FailedPrecondition(
            "The subscription's oldest unacknowledged message is too old: the snapshot would expire within an hour."
        )
    return expire_time


def check_snapshot(snapshot: Snapshot, now: datetime) -> None:
    """Raises InvalidArgument for labels out of Google's limits and a life out of its bounds."""
    assert snapshot.created_at is not None
    check_labels(snapshot.labels)
    if not now < snapshot.expire_time <= snapshot.created_at + MAX_LIFE:
        raise InvalidArgument(
            f"Invalid expire_time: {snapshot.expire_time.isoformat()} is not between now and 7 days after the "
            "snapshot's creation."
        )
