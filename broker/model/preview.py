"""The rule of every destructive call: its preview, and the limits that its caller sets.

A caller may ask what a call would do (`validateOnly`), and may limit it to what existed at a time (`asOf`) and to
an amount (`expectedCount`, `tolerancePercent`).  A call counts what it removes or changes in the transaction that
removes or changes it, and calls `Safeguards.check` before the commit.  So the action agrees with the limits, or it
is refused and changes nothing (docs/decisions/0096).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from broker.model.errors import FailedPrecondition, InvalidArgument, NotAsExpected
from broker.model.timestamps import END_OF_TIME, format_timestamp, whole_milliseconds

MAX_REFERENCES = 100  # that a preview names; the others are counted
MAX_EXACT = 1_000_000  # batches, or messages in steps, that are counted for a limit
MAX_COMPARED = 100_000  # messages that are looked at one by one for a limit, which takes the event loop about 0.2 s

# The fields of `Safeguards` as requests name them.
SAFEGUARDS = ("asOf", "expectedCount", "tolerancePercent", "validateOnly")


class Referrer(StrEnum):
    """The reasons why a resource is affected by the removal of another one."""

    SUBSCRIPTION = "SUBSCRIPTION"  # of the topic: it gets nothing more
    SNAPSHOT = "SNAPSHOT"  # of the topic: no subscription can be sought to it
    DEAD_LETTER_POLICY = "DEAD_LETTER_POLICY"  # of the subscription that is named
    SCHEDULE = "SCHEDULE"
    EVENTS = "EVENTS"  # the project publishes its events there
    OPERATION = "OPERATION"  # one that runs
    TOPIC = "TOPIC"  # it has the schema
    PUSH_TOKEN = "PUSH_TOKEN"  # noqa: S105  # pushes of the subscription carry a token of the account
    KEY = "KEY"  # of the account
    POLICY = "POLICY"  # it grants the role, or grants something to the account
    API_KEY = "API_KEY"  # it has the role


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A resource that refers to the one that a call removes."""

    name: str
    referrer: Referrer


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The preview of a destructive call.

    `count`: how many messages or resources it would remove or change; `expectedCount` is compared with this.
    `unit`: what is counted, in the singular.  `losses`: the parts of the count, and what else would be lost, by
    their names in responses.  `is_estimated`: there was more than was counted one by one.  `references`: up to
    MAX_REFERENCES of the `reference_count` resources that refer to the one that would be removed.  `time`: when it
    was counted.
    """

    count: int
    unit: str
    time: datetime
    losses: Mapping[str, int] = field(default_factory=dict)
    is_estimated: bool = False
    references: Sequence[Reference] = ()
    reference_count: int = 0


def preview_of_references(references: Sequence[Reference], *, time: datetime) -> Preview:
    """Returns the preview of removing a resource that has no messages: its removal affects what refers to it."""
    return Preview(
        count=len(references),
        unit="reference",
        time=time,
        references=references[:MAX_REFERENCES],
        reference_count=len(references),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguards:
    """The fields of a destructive call that ask for a preview or limit the action.  A call without them counts
    nothing.
    """

    validate_only: bool = False
    as_of: datetime | None = None
    expected_count: int | None = None
    tolerance_percent: float | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if self.expected_count is not None and self.expected_count < 0:
            raise InvalidArgument(f"expectedCount must not be negative (expectedCount={self.expected_count}).")
        if self.tolerance_percent is None:
            return
        if not 0 <= self.tolerance_percent <= 100:
            raise InvalidArgument(
                f"tolerancePercent must be from 0 to 100 (tolerancePercent={self.tolerance_percent:g})."
            )
        if self.expected_count is None:
            raise InvalidArgument(
                "tolerancePercent needs expectedCount: it says by how much the count may differ from that "
                f"(tolerancePercent={self.tolerance_percent:g})."
            )

    @property
    def asked(self) -> bool:
        """Whether the call must count what it removes or changes before it does so."""
        return self.validate_only or self.is_limited

    @property
    def is_limited(self) -> bool:
        """Whether the call may be refused because of what has changed."""
        return self.expected_count is not None or self.as_of is not None

    @property
    def before(self) -> datetime | None:
        """The exclusive end of the publish times up to `asOf`, which are whole milliseconds; None: there is no
        limit.
        """
        return None if self.as_of is None else min(self.as_of, END_OF_TIME) + timedelta(microseconds=1)

    @property
    def max_counted(self) -> int | None:
        """The most that is counted; None: the limit that the preview has by itself."""
        return MAX_EXACT if self.is_limited else None

    def check(self, preview: Preview) -> None:
        """Checks the count of a preview against the expected one.

        Raises NotAsExpected (it differs), FailedPrecondition (it is an estimate, and cannot be checked).
        """
        if self.expected_count is None:
            return
        if preview.is_estimated:
            raise FailedPrecondition(
                f"expectedCount cannot be checked: {preview.count:,} {preview.unit}s is an estimate, because there "
                f"is too much to be counted; leave it out, or choose less (expectedCount={self.expected_count})."
            )
        tolerance = self.tolerance_percent or 0.0
        if abs(preview.count - self.expected_count) * 100 > tolerance * self.expected_count:
            are = f"{preview.count} {preview.unit}{'' if preview.count == 1 else 's'}"
            raise NotAsExpected(
                f"{are} would be affected, but {self.expected_count} were expected: nothing was changed "
                f"(count={preview.count}, expectedCount={self.expected_count}, tolerancePercent={tolerance:g})."
            )

    def check_existed(self, created_at: datetime, name: str) -> None:
        """Raises NotAsExpected if a resource was created after `asOf`, and so is not the one that
        the caller means.
        """
        if self.as_of is not None and whole_milliseconds(created_at) > self.as_of:
            raise self._newer(f"{name} was created at {format_timestamp(created_at)}")

    def check_newest(self, newest: datetime | None, what: str) -> None:
        """Raises NotAsExpected if the newest of what the call would change came after `asOf` (`newest` None: there
        is none).
        """
        if self.as_of is not None and newest is not None and newest > self.as_of:
            raise self._newer(f"{what} at {format_timestamp(newest)}")

    def _newer(self, what: str) -> NotAsExpected:
        assert self.as_of is not None
        return NotAsExpected(
            f"{what}, after asOf, and the call cannot leave that alone: nothing was changed "
            f"(asOf={format_timestamp(self.as_of)})."
        )

    def previewed(self, preview: Preview) -> Preview | None:
        """Decides about an action before its transaction makes it.

        Returns the preview if the caller asked only for that, and None if the action is to be made.  Raises
        NotAsExpected, FailedPrecondition.
        """
        self.check(preview)
        return preview if self.validate_only else None

    def settle(self, preview: Preview) -> None:
        """Decides about an action that its transaction has made, before the commit.

        Raises NotAsExpected, FailedPrecondition; and Undone if the caller asked only for a preview.
        """
        self.check(preview)
        if self.validate_only:
            raise Undone(preview)


UNGUARDED = Safeguards()


class Undone(Exception):
    """A preview, raised so that the transaction that has found it out rolls back."""

    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self.preview = preview
