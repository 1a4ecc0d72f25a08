"""The period for which a certificate is valid, and when it should be renewed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class ValidityState(StrEnum):
    VALID = "VALID"
    RENEW = "RENEW"  # less than a third of its lifetime is left
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class Validity:
    """A third of the lifetime is what programs that renew certificates leave, be it hours or months."""

    begins: datetime
    ends: datetime

    @property
    def lifetime(self) -> timedelta:
        return self.ends - self.begins

    @property
    def renew_at(self) -> datetime:
        return self.ends - self.lifetime / 3

    def state(self, now: datetime) -> ValidityState:
        if now >= self.ends:
            return ValidityState.EXPIRED
        return ValidityState.RENEW if now >= self.renew_at else ValidityState.VALID


def span_in_words(span: timedelta) -> str:
    """ "20 days", "5 hours", "40 minutes": whole ones, of the largest unit of which there are at least two."""
    for unit, name in ((timedelta(days=1), "days"), (timedelta(hours=1), "hours")):
        if span >= 2 * unit:
            return f"{span // unit} {name}"
    return f"{max(span, timedelta(0)) // timedelta(minutes=1)} minutes"
