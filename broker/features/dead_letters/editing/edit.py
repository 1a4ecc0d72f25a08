"""A dead letter is mended, and comes back as a new message to the subscription that dead-lettered it (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.message_id import parse_message_id
from broker.model.publish_limits import check_messages, named, refuse_nul


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterEdit:
    """Of one letter, by its message's first id or its own.  `data` None: it keeps its data."""

    message_id: str
    set_attributes: Mapping[str, str] = field(default_factory=dict)
    remove_attributes: Sequence[str] = ()
    data: bytes | None = None

    def attributes(self, had: Mapping[str, str]) -> dict[str, str]:
        """What the new message has."""
        kept = {name: text for name, text in had.items() if name not in self.remove_attributes}
        return kept | dict(self.set_attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """`message_id` is the new one's.  `out_of_order`: its ordering key's other messages are not in line with it."""

    message_id: str
    replaces: Sequence[str]
    out_of_order: bool


def check_edit(edit: DeadLetterEdit) -> None:
    """Raises InvalidArgument."""
    if not edit.message_id:
        raise InvalidArgument("messageId is missing: it says which dead letter is edited.")
    parse_message_id(edit.message_id)
    if both := sorted({*edit.remove_attributes} & edit.set_attributes.keys()):
        raise InvalidArgument(f"An attribute is both set and removed (attribute={both[0][:100]}).")
    with named("setAttributes", of="messages[0].attributes"):
        check_messages([NewMessage(b"-", dict(edit.set_attributes))])
    refuse_nul("setAttributes", edit.set_attributes)
