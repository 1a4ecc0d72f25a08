"""Long work that a call starts and does not wait for: google.longrunning's Operation (G1).

RUNNING ──its last step──► SUCCEEDED
   ├─────────:cancel─────► CANCELLED     what was done until then stays done
   └──a step cannot be───► FAILED
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from broker.model.errors import InvalidArgument
from broker.model.operation_verb import Verb

MAX_STEP = 500  # messages: a step is one transaction, and others wait for what it locks
MAX_RATE = 1_000_000.0  # messages a second
MAX_REPORTED = 100  # messages that an operation names of those that it has left alone
_CATCHING_UP = timedelta(seconds=1)  # a step that came late, or took long, makes up for so much
_STEPS_A_SECOND = 10.0  # about, of one whose rate is limited


class OperationState(StrEnum):
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The call that starts an operation: the principal that made it, and its request (JSON) as it was sent."""

    principal: str
    request: Mapping[str, Any]


_ASKED = "asked"  # the field of `request` with the request of the caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One, as it is stored.  `request` and `progress` are its verb's own.  `done` messages of `total` have been
    seen to; `is_estimate`: of at most so many.  `counts`: what became of them.
    """

    name: str
    project: str
    verb: Verb | str
    target: str
    started_by: str = ""
    request: Mapping[str, Any]
    progress: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    done: int = 0
    total: int = 0
    is_estimate: bool = False
    created_at: datetime
    updated_at: datetime
    next_step_at: datetime
    ended_at: datetime | None = None
    error_code: str = ""
    error_message: str = ""

    @property
    def state(self) -> OperationState:
        if self.ended_at is None:
            return OperationState.RUNNING
        if not self.error_code:
            return OperationState.SUCCEEDED
        return OperationState.CANCELLED if self.error_code == "CANCELLED" else OperationState.FAILED

    @property
    def asked(self) -> Mapping[str, Any]:
        """The request of the call that started it, as it was sent."""
        asked: Mapping[str, Any] = self.request.get(_ASKED, {})
        return asked

    @property
    def max_rate(self) -> float | None:
        """Messages a second at most; None: as fast as it goes."""
        rate = self.request.get("maxMessagesPerSecond")
        return None if rate is None else float(rate)

    @property
    def rate(self) -> float:
        """Messages a second, from its start to its last step."""
        seconds = ((self.ended_at or self.updated_at) - self.created_at).total_seconds()
        return self.done / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one transaction has done.  `progress`: where to go on; `ended`: that was all.

    `woken`: subscriptions that have something to claim now; `published`: shards that have new messages.
    """

    progress: Mapping[str, Any]
    ended: bool = False
    done: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    woken: Sequence[int] = ()
    published: Sequence[int] = ()


def with_origin(request: Mapping[str, Any], origin: Origin) -> Mapping[str, Any]:
    """What is stored as the request of an operation: what its verb needs, and the request of the caller."""
    return {**request, _ASKED: origin.request}


def step_size(operation: Operation) -> int:
    """How many messages the next step may take up.

    Where steps take so long that the operation falls short of its rate, they take up what is missing as well, but
    no more than the rate allows in a second.
    """
    rate = operation.max_rate
    if rate is None:
        return MAX_STEP
    missing = rate * (operation.updated_at - operation.created_at).total_seconds() - operation.done
    size = min(rate / _STEPS_A_SECOND + max(missing, 0.0), rate)
    return max(1, min(MAX_STEP, int(size)))


def next_step_at(operation: Operation, done: int, now: datetime) -> datetime:
    """When the step after one that has seen to so many messages may begin."""
    rate = operation.max_rate
    if rate is None or not done:
        return now
    return max(operation.next_step_at, now - _CATCHING_UP) + timedelta(seconds=done / rate)


def added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Both together."""
    return {
        name: counts.get(name, 0) + more.get(name, 0) for name in [*counts, *(n for n in more if n not in counts)]
    }


def check_rate(rate: float | None) -> None:
    """Raises InvalidArgument."""
    if rate is not None and not 0.01 <= rate <= MAX_RATE:
        raise InvalidArgument(
            f"maxMessagesPerSecond must be from 0.01 to {MAX_RATE:,.0f}; leave it out for no limit "
            f"(maxMessagesPerSecond={rate:g})."
        )
