"""What an action would do, as the API's preview of its call tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.client.words import size
from broker.console.actions.action import Call, Json
from broker.console.actions.common import plural

_TOLERANCE_PERCENT = 1

_LOSSES = {
    "scheduledMessages": "messages that are to come later",
    "deadLetters": "dead letters",
    "skippedMessages": "messages are skipped",
    "replayedMessages": "messages are delivered again",
    "notRetainedMessages": "messages are not retained any more",
}

_SIZES = {"bytes": "of data", "skippedBytes": "of data are skipped", "replayedBytes": "of data are delivered again"}


@dataclass(frozen=True, slots=True)
class Preview:
    """`count` of `unit`; `losses`: numbers and their words; `references`: names, of `reference_count`."""

    count: int
    unit: str
    as_of: str
    is_estimated: bool
    losses: Sequence[tuple[str, str]]
    references: Sequence[Mapping[str, str]]
    reference_count: int

    @property
    def number(self) -> str:
        """The count with its unit."""
        return ("about " if self.is_estimated else "") + plural(self.count, self.unit)

    @property
    def loses_something(self) -> bool:
        return self.count > 0 or self.reference_count > 0


def asking(call: Call) -> Call:
    """Return the call that asks for the preview of `call`."""
    return _with(call, {"validateOnly": True})


def guarded(call: Call, *, count: str, as_of: str, is_estimated: bool) -> Call:
    """Return the call, which the API refuses if what it would touch is not any more what was shown.

    An estimate cannot be compared, so the time alone guards it.
    """
    if is_estimated:
        return _with(call, {"asOf": as_of})
    return _with(call, {"asOf": as_of, "expectedCount": int(count), "tolerancePercent": _TOLERANCE_PERCENT})


def preview_of(answer: Json) -> Preview:
    """Return the preview in an answer: that of a call, or that of the operation which it would start."""
    found = answer.get("metadata", answer)
    given = found.get("losses", {})
    losses = [(f"{given[name]:,}", words) for name, words in _LOSSES.items() if given.get(name)]
    losses += [(size(given[name]), words) for name, words in _SIZES.items() if given.get(name)]
    references = found.get("referredToBy", [])
    return Preview(
        count=int(found.get("count", found.get("total", 0))),
        unit=found.get("unit", "message"),
        as_of=found.get("asOf", ""),
        is_estimated=bool(found.get("estimated", False)),
        losses=losses,
        references=references,
        reference_count=int(found.get("referenceCount", len(references))),
    )


def _with(call: Call, fields: Json) -> Call:
    if call.method != "DELETE":
        return Call(call.method, call.path, call.body | fields, call.query)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    return Call(call.method, call.path, call.body, {**call.query, **texts})
