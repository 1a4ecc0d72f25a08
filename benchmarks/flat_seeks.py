"""Seek, snapshot and delete on a subscription with a large backlog: what they cost, and by what.

They touch what is out, never the backlog.  The cases with the same 100 responses out must be flat; those with a
share of the backlog out, or with every key held, say what an unusual state costs.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from benchmarks.backlog import Backlog

_TIMES = 11
_RARELY = 3
_NOW_AND_THEN = timedelta(minutes=10)
_RESTORED = 200_000


class Ground(Protocol):
    """What flat_claims.Ground is."""

    backlog: Backlog

    @property
    def project(self) -> str: ...

    def subscription(self, name: str) -> str: ...

    def call(self, method: str, path: str, body: object = None) -> tuple[float, bytes]: ...


State = Callable[[Ground], str]  # brings a subscription into a state; returns its name
Act = Callable[[Ground, str], float]  # seconds


@dataclass(frozen=True, slots=True)
class Seek:
    """`act` done `times` times to a subscription in a `state`; `flat`: the state is the same for any backlog."""

    measure: str
    state: State
    act: Act
    times: int = _TIMES
    flat: bool = True

    def run(self, ground: Ground) -> list[float]:
        """Seconds each.  Raises LoadFailed."""
        taken = []
        for _ in range(self.times + 1):
            name = self.state(ground)
            taken.append(self.act(ground, name))
        return taken[1:]


def _some_out(ground: Ground) -> str:
    name = ground.subscription("sought")
    ground.backlog.put_out(name, 1_000, size=10, due_in=_NOW_AND_THEN)
    return name


def _quarter_out(ground: Ground) -> str:
    name = ground.subscription("sought")
    ground.backlog.put_out(name, ground.backlog.size // 4, size=100, due_in=_NOW_AND_THEN)
    return name


def _keys_held(ground: Ground) -> str:
    name = ground.subscription("sought-ordered")
    ground.backlog.hold_keys(name)
    return name


def _keys_due(ground: Ground) -> str:
    name = ground.subscription("sought-ordered")
    ground.backlog.settle_keys(name)
    return name


def _another(ground: Ground) -> str:
    """A subscription of its own, with what `_some_out` has out."""
    name = ground.subscription(f"another-{uuid.uuid4().hex[:8]}")
    ground.call("PUT", name, {"topic": ground.backlog.topic})
    ground.backlog.put_out(name, 1_000, size=10, due_in=_NOW_AND_THEN)
    return name


def _seek(ground: Ground, name: str, time: datetime) -> float:
    return ground.call("POST", f"{name}:seek", {"time": time.isoformat()})[0]


def _seek_to_the_middle(ground: Ground, name: str) -> float:
    return _seek(ground, name, ground.backlog.publish_time(ground.backlog.size // 2))


def _seek_to_the_start(ground: Ground, name: str) -> float:
    return _seek(ground, name, ground.backlog.publish_time(1))


def _seek_to_now(ground: Ground, name: str) -> float:
    return _seek(ground, name, datetime.now(UTC))


def _purge(ground: Ground, name: str) -> float:
    return ground.call("POST", f"{name}:purge", {})[0]


def _delete(ground: Ground, name: str) -> float:
    return ground.call("DELETE", name)[0]


def _snapshot_of(ground: Ground, name: str) -> tuple[float, str]:
    snapshot = f"{ground.project}/snapshots/s-{uuid.uuid4().hex[:8]}"
    return ground.call("PUT", snapshot, {"subscription": name})[0], snapshot


def _create_snapshot(ground: Ground, name: str) -> float:
    seconds, snapshot = _snapshot_of(ground, name)
    ground.call("DELETE", snapshot)
    return seconds


def _delete_snapshot(ground: Ground, name: str) -> float:
    return ground.call("DELETE", _snapshot_of(ground, name)[1])[0]


def _seek_to_snapshot(ground: Ground, name: str) -> float:
    return _restore(ground, name, name)


def _restore(ground: Ground, source: str, target: str) -> float:
    _, snapshot = _snapshot_of(ground, source)
    seconds, _ = ground.call("POST", f"{target}:seek", {"snapshot": snapshot})
    ground.call("DELETE", snapshot)
    return seconds


def _restore_in_order(ground: Ground, name: str) -> float:
    """A snapshot of an unordered subscription into an ordered one: what is out is gathered by key."""
    return _restore(ground, name, ground.subscription("sought-ordered"))


def _read_position(ground: Ground, name: str) -> float:
    return ground.call("GET", f"{name}/snapshot")[0]


def _many_out(ground: Ground) -> str:
    name = ground.subscription("sought")
    ground.backlog.put_out(name, min(_RESTORED, ground.backlog.size), size=1_000, due_in=_NOW_AND_THEN)
    return name


SEEKS: Sequence[Seek] = (
    Seek("seek to the middle of the backlog", _some_out, _seek_to_the_middle),
    Seek("seek to its start", _some_out, _seek_to_the_start),
    Seek("seek past its end", _some_out, _seek_to_now),
    Seek("purge", _some_out, _purge),
    Seek("create a snapshot", _some_out, _create_snapshot),
    Seek("seek to a snapshot", _some_out, _seek_to_snapshot),
    Seek("delete a snapshot", _some_out, _delete_snapshot),
    Seek("delete the subscription", _another, _delete),
    Seek("read its position", _some_out, _read_position),
    Seek("seek, a quarter out", _quarter_out, _seek_to_the_start, _RARELY, flat=False),
    Seek("create a snapshot, a quarter out", _quarter_out, _create_snapshot, _RARELY, flat=False),
    Seek("seek to a snapshot, a quarter out", _quarter_out, _seek_to_snapshot, _RARELY, flat=False),
    Seek("seek, all keys held", _keys_held, _seek_to_the_start, _RARELY, flat=False),
    Seek("create a snapshot, all keys held", _keys_held, _create_snapshot, _RARELY, flat=False),
    Seek("seek to a snapshot, all keys held", _keys_held, _seek_to_snapshot, _RARELY, flat=False),
    Seek("read the position, everything waits behind its key", _keys_due, _read_position, 1, flat=False),
    Seek(f"restore {_RESTORED:,} messages in order", _many_out, _restore_in_order, _RARELY, flat=False),
)
