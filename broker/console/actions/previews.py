"""Previews of actions: asking the API for one, and limiting an action to what its preview showed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.client.safeguards import as_parameters
from broker.client.words import counted, loss_text
from broker.console.actions.action import Call, Json

_TOLERANCE_PERCENT = 1


@dataclass(frozen=True, slots=True)
class Preview:
    """`count` of `unit`; `losses`: what else is lost, in words; `references`: names, of `reference_count`."""

    count: int
    unit: str
    as_of: str
    is_estimated: bool
    losses: Sequence[str]
    references: Sequence[Mapping[str, str]]
    reference_count: int

    @property
    def number(self) -> str:
        """The count with its unit."""
        return ("about " if self.is_estimated else "") + counted(self.count, self.unit)

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
    count, unit = int(found.get("count", found.get("total", 0))), found.get("unit", "message")
    losses = [loss_text(what, number) for what, number in found.get("losses", {}).items() if number]
    references = found.get("referredToBy", [])
    return Preview(
        count=count,
        unit=unit,
        as_of=found.get("asOf", ""),
        is_estimated=bool(found.get("estimated", False)),
        losses=[loss for loss in losses if loss != counted(count, unit)],
        references=references,
        reference_count=int(found.get("referenceCount", len(references))),
    )


def _with(call: Call, fields: Json) -> Call:
    if call.method != "DELETE":
        return Call(call.method, call.path, call.body | fields, call.query)
    return Call(call.method, call.path, call.body, {**call.query, **as_parameters(fields)})
