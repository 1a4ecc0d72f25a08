"""An edit of a dead letter, which returns to its subscription as a new message (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.message_id import parse_message_id
from broker.model.publish_limits import check_messages, named, refuse_nul


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterEdit:
    """An edit of the dead letter with an id, which is its own or that of its source message.

    `data`: the new data (None: unchanged).
    """

    message_id: str
    set_attributes: Mapping[str, str] = field(default_factory=dict)
    remove_attributes: Sequence[str] = ()
    data: bytes | None = None

    def attributes(self, had: Mapping[str, str]) -> dict[str, str]:
        """Returns the attributes of the new message."""
        kept = {name: text for name, text in had.items() if name not in self.remove_attributes}
        return kept | dict(self.set_attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The result of an edit; `message_id` is that of the new message.

    `out_of_order`: it has an ordering key, and is not ordered against the other messages of that key.
    """

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
