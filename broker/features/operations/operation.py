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
    """A stored operation.

    `request` and `progress` have the form of its verb.  `done` of `total` messages have been processed;
    `is_estimate`: `total` is an upper bound.  `counts`: the number of messages by outcome.
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
        """The request that started the operation, as it was sent."""
        asked: Mapping[str, Any] = self.request.get(_ASKED, {})
        return asked

    @property
    def max_rate(self) -> float | None:
        """The most messages a second; None: there is no limit."""
        rate = self.request.get("maxMessagesPerSecond")
        return None if rate is None else float(rate)

    @property
    def rate(self) -> float:
        """The messages a second, from its start to its last step."""
        seconds = ((self.ended_at or self.updated_at) - self.created_at).total_seconds()
        return self.done / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one transaction.

    `progress`: where the next step continues; `ended`: there is no next step.  `woken`: subscriptions that have
    messages to claim now; `published`: shards that have new messages.
    """

    progress: Mapping[str, Any]
    ended: bool = False
    done: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    woken: Sequence[int] = ()
    published: Sequence[int] = ()


def with_origin(request: Mapping[str, Any], origin: Origin) -> Mapping[str, Any]:
    """Returns what is stored as the request of an operation: the data that its verb needs, and the request of the
    caller.
    """
    return {**request, _ASKED: origin.request}


def step_size(operation: Operation) -> int:
    """Returns the most messages that the next step may process.

    If steps take so long that the operation falls short of its rate, the next one also processes the missing
    messages, but no more than the rate allows in a second.
    """
    rate = operation.max_rate
    if rate is None:
        return MAX_STEP
    missing = rate * (operation.updated_at - operation.created_at).total_seconds() - operation.done
    size = min(rate / _STEPS_A_SECOND + max(missing, 0.0), rate)
    return max(1, min(MAX_STEP, int(size)))


def next_step_at(operation: Operation, done: int, now: datetime) -> datetime:
    """Returns when the step after one that has processed `done` messages may begin."""
    rate = operation.max_rate
    if rate is None or not done:
        return now
    return max(operation.next_step_at, now - _CATCHING_UP) + timedelta(seconds=done / rate)


def added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Returns the sums of two sets of counts."""
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
