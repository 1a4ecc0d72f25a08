"""Decides which part of a message one caller sees.

    sight         permission of the caller                                  what the caller sees
    WHOLE         attachSubscription or consume, or pubsub.messages.view    the message as it was published
    MASKED        pubsub.messages.viewMasked                                what no masking rule hides
    ATTRIBUTES    pubsub.messages.viewAttributes                            the same, without the data

Every call that shows a message uses `MessageView.show`, and asks `check_search` before it searches: a caller who
may not see a value must not find out by a search what it is.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import msgspec

from broker.access.policies.authorizer import Required
from broker.api.permissions import VIEW, VIEW_ATTRIBUTES, VIEW_MASKED
from broker.core.filtering.ast import (
    And,
    BodyCompares,
    BodyEquals,
    BodyHas,
    BodyHasPrefix,
    Equals,
    Expression,
    HasPrefix,
    Not,
    NotEquals,
    Or,
)
from broker.core.filtering.changes import filter_expression
from broker.core.viewing.json_mask import MASK, mask_json
from broker.core.viewing.masking_rule import MaskingRule, matches_any
from broker.model.errors import PermissionDenied

MAX_MASKED_BYTES = 262_144  # of data in which fields are masked; larger data is hidden as a whole
_LONG = 16_384  # bytes whose masking takes about a millisecond

_attributes = msgspec.json.Decoder(dict[str, str])


class Sight(IntEnum):
    ATTRIBUTES = 1
    MASKED = 2
    WHOLE = 3


def sight_of(required: Sequence[Required]) -> Sight:
    """The part of messages that the permission of a caller shows; without authentication, everything."""
    held = {each.permission for each in required}
    if VIEW_ATTRIBUTES in held:
        return Sight.ATTRIBUTES
    return Sight.MASKED if VIEW_MASKED in held else Sight.WHOLE


def read_bytes_for_any_rule(sight: Sight, preview_bytes: int) -> int:
    """Returns how much data of each message to read for a preview, where its rules are found after it was read."""
    if sight is Sight.ATTRIBUTES or not preview_bytes:
        return 0
    return max(preview_bytes, MAX_MASKED_BYTES) if sight is Sight.MASKED else preview_bytes


class Masked(msgspec.Struct, rename="camel", omit_defaults=True):
    """The hidden part of a message: the values of `attributes`, and of the data "FIELDS" or "ALL".

    `rules` hide it; none of them: the caller may not see data.  With `permission` it would be shown.
    """

    permission: str
    rules: list[str] = []
    attributes: list[str] = []
    data: str = ""


class Shown(NamedTuple):
    """`attributes` is JSON text; `masked`: None if nothing is hidden."""

    attributes: str
    data: bytes
    masked: Masked | None = None


@dataclass(frozen=True, slots=True)
class MessageView:
    """`rules`: those that are for the messages, none if the sight is WHOLE."""

    sight: Sight
    rules: Sequence[MaskingRule] = ()

    @property
    def hides_fields(self) -> bool:
        return any(rule.fields for rule in self.rules)

    def _mask_fields(self, data: bytes) -> bytes | None:
        """Returns data without its masked fields.  None: it has to be hidden as a whole."""
        if len(data) > MAX_MASKED_BYTES:
            return None
        return mask_json(data, [path for rule in self.rules for path in rule.fields])

    def joined(self, other: "MessageView") -> "MessageView":
        """The view by the rules of both."""
        more = [rule for rule in other.rules if rule not in self.rules]
        return replace(self, rules=[*self.rules, *more]) if more else self

    def read_bytes(self, preview_bytes: int) -> int:
        """Returns the number of bytes of data to read of each message for a preview of so many."""
        if self.sight is Sight.ATTRIBUTES or not preview_bytes:
            return 0
        return MAX_MASKED_BYTES if self.hides_fields else preview_bytes

    async def show(self, attributes: str, data: bytes | None, data_size: int, preview_bytes: int) -> Shown:
        """Returns what the caller sees of a message, with the first `preview_bytes` of its data.

        `data`: as much as `read_bytes` asks for.
        """
        data = data or b""
        if self.sight is Sight.WHOLE:
            return Shown(attributes, data[:preview_bytes])
        hidden: list[MaskingRule] = []
        names: list[str] = []
        if attributes != "{}" and any(rule.attributes for rule in self.rules):
            attributes, names, hidden = self._mask_attributes(attributes)
        how = ""
        if data_size and self.sight is Sight.ATTRIBUTES:
            data, how = b"", "ALL"
        elif data_size and preview_bytes and self.hides_fields:
            shown = self._mask_fields(data) if len(data) == data_size else None
            if len(data) > _LONG:
                await asyncio.sleep(0)
            how = "ALL" if shown is None else "FIELDS" if shown != data else ""
            data = shown or b""
            hidden += [rule for rule in self.rules if rule.fields and rule not in hidden] if how else []
        if not names and not how:
            return Shown(attributes, data[:preview_bytes])
        said = Masked(VIEW, [rule.name for rule in hidden], names, how)
        return Shown(attributes, data[:preview_bytes], said)

    def show_json(self, text: bytes) -> tuple[bytes, Masked | None]:
        """Returns what the caller sees of data that was decoded to JSON.

        Raises PermissionDenied if it is hidden as a whole.
        """
        if self.sight is Sight.WHOLE or not self.hides_fields:
            return text, None
        shown = self._mask_fields(text)
        if shown is None:
            raise self.refuse_masked_data()
        if shown == text:
            return text, None
        return shown, Masked(VIEW, [rule.name for rule in self.rules if rule.fields], [], "FIELDS")

    def _mask_attributes(self, text: str) -> tuple[str, list[str], list[MaskingRule]]:
        given, names, hidden = _attributes.decode(text), [], []
        for name in given:
            by = [rule for rule in self.rules if matches_any(name, rule.attributes)]
            if by:
                names.append(name)
                given[name] = MASK
                hidden += [rule for rule in by if rule not in hidden]
        return (msgspec.json.encode(given).decode() if names else text), names, hidden

    def check_search(self, *, filter_text: str = "", contains: str = "") -> None:
        """Raises PermissionDenied for a search in what the caller does not see, and InvalidArgument for a text
        that is no filter.
        """
        if self.sight is Sight.WHOLE:
            return
        if contains:
            self._check_data("contains")
        expression = filter_expression(filter_text)
        for each in _comparisons(expression) if expression is not None else ():
            if isinstance(each, BodyHas | BodyEquals | BodyCompares | BodyHasPrefix):
                self._check_data("filter")
            elif isinstance(each, Equals | NotEquals | HasPrefix):
                self.check_attribute(each.key, "filter")

    def check_attribute(self, name: str, field: str) -> None:
        """Raises PermissionDenied if the caller does not see the values of an attribute that a field compares."""
        for rule in self.rules:
            if matches_any(name, rule.attributes):
                raise _refusal(f"{field} compares the attribute {name}, which {rule.name} masks", VIEW)

    def refuse_masked_data(self) -> PermissionDenied:
        """Returns the error for data that is hidden as a whole."""
        rules = ", ".join(rule.name for rule in self.rules if rule.fields)
        return _refusal(
            f"The data of this message is masked as a whole by {rules}, as it is no JSON in which fields could be",
            VIEW,
        )

    def _check_data(self, field: str) -> None:
        if self.sight is Sight.ATTRIBUTES:
            raise _refusal(f"{field} searches in data, which is not shown to this caller", VIEW_MASKED)
        rule = next((rule for rule in self.rules if rule.fields), None)
        if rule is not None:
            raise _refusal(f"{field} searches in data of which {rule.name} masks a part", VIEW)


SEES_ALL = MessageView(Sight.WHOLE)


def _comparisons(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Not(operand):
            yield from _comparisons(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _comparisons(operand)
        case _:
            yield expression


def _refusal(what: str, permission: str) -> PermissionDenied:
    return PermissionDenied(
        f"{what}; the permission '{permission}' shows it.",
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "IAM_PERMISSION_DENIED",
                "domain": "iam.googleapis.com",
                "metadata": {"permission": permission},
            }
        ],
    )
