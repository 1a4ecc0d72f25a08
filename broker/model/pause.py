"""A pause: nothing of a subscription is delivered until an operator ends it."""

from dataclasses import dataclass
from datetime import datetime

from broker.model.errors import InvalidArgument
from broker.model.refusals import refuse_nul

MAX_REASON = 1_000  # characters
_WITHHELD = "Not allowed: "
_GONE = "Gone: "


@dataclass(frozen=True, slots=True)
class Pause:
    """Why, since when (None: whoever began it did not say), and by whom ("": it is not known, or the broker)."""

    reason: str
    since: datetime | None = None
    by: str = ""

    @property
    def why(self) -> str:
        """The reason for people, without a full stop."""
        return self.reason.rstrip(".") + (f" (by {self.by})" if self.by else "")


def check_reason(reason: str) -> None:
    """Raises InvalidArgument for a reason that is too long, has U+0000, or begins as the broker's own."""
    refuse_nul(reason, "reason")
    if is_of_endpoint(reason):
        raise InvalidArgument(
            f"reason must not begin with {_WITHHELD!r} or {_GONE!r}, as the reasons of pauses do that the broker "
            f"itself begins (reason={reason[:100]})."
        )
    if len(reason) > MAX_REASON:
        raise InvalidArgument(f"reason has {len(reason)} characters, the maximum is {MAX_REASON}.")


def withheld_reason(why: str) -> str:
    """Returns the reason of a pause that the broker begins because it may not push, and ends once it may."""
    return f"{_WITHHELD}{why}."


def gone_reason(origin: str, messages: int) -> str:
    """The reason of a pause that the broker begins because the endpoint says that it is gone."""
    return f"{_GONE}the endpoint ({origin}) answered {messages} messages with 410, and accepted none in between."


def is_of_endpoint(reason: str) -> bool:
    """Whether the broker itself began the pause with this reason, because it cannot push to the endpoint."""
    return reason.startswith((_WITHHELD, _GONE))


def is_withheld(reason: str) -> bool:
    """Whether the broker ends the pause with this reason by itself."""
    return reason.startswith(_WITHHELD)
