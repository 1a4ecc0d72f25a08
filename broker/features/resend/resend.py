"""A resend: retained messages are delivered again to one subscription, whatever their delivery state there (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.model.errors import InvalidArgument
from broker.model.message_id import parse_message_id, parse_message_ids

MAX_RESENT = 1_000  # messages of one call
ANSWER = "resent"  # how the journal's REPLAYED is answered then


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendOptions:
    """The options of a resend; `one`: a single id, for which a refusal is an error."""

    message_ids: Sequence[str]
    one: bool = False


def check_resend(options: ResendOptions) -> None:
    """Raises InvalidArgument."""
    count = len(options.message_ids)
    if not 1 <= count <= MAX_RESENT:
        raise InvalidArgument(f"messageIds has {count} ids, from 1 to {MAX_RESENT:,} are needed.")
    if options.one:
        parse_message_id(options.message_ids[0])
    else:
        parse_message_ids(options.message_ids)
