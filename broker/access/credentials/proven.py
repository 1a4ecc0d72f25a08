"""The identity that a credential proves."""

from dataclasses import dataclass
from datetime import datetime

from broker.access.principals.caller import Caller


@dataclass(frozen=True, slots=True)
class Proven:
    """A caller, and until when its credential proves that."""

    caller: Caller
    until: datetime
