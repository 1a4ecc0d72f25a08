"""Selects and orders the subscriptions of a list of lags.

An order belongs to one sample: `lag_orders` has the subscriptions of a project in the order that they had when the
project had been sampled.  The token of the next page names that sample and the number of subscriptions on earlier
pages, so that new samples neither repeat nor omit a subscription.  The values that are shown are the latest.
Subscriptions that are newer than the order come at the end, by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from broker.core.lag.lag import NOT_SAMPLED, LagState
from broker.model.durations import parse_duration
from broker.model.errors import InvalidArgument
from broker.model.list_filter import TextComparison, parse_list_filter, refused_field, refused_operator
from broker.model.page import check_page_size, invalid_page_token, parse_page_token

NAME = "subscription"
AGE = "oldestUndeliveredMessageAge"
# Fields that are numbers, and the columns of `lag_samples` that have them, which are also fields of LagSample.
COUNTS: Mapping[str, str] = {
    "blockedMessages": "blocked_messages",
    "deadLetters": "dead_letters",
    "incomingMessagesPerSecond": "incoming_rate",
    "outgoingMessagesPerSecond": "outgoing_rate",
    "outstandingMessages": "outstanding_messages",
    "undeliveredBytesEstimate": "undelivered_bytes",
    "undeliveredMessages": "undelivered_messages",
}
ORDERS = (NAME, AGE, *COUNTS)
TEXTS = ("name", "topic")
STATES = ("deliveryState", "heldBy")
BREAKERS = ("closed", "half_open", "open")
HELD_BY_NOTHING = frozenset({LagState.CAUGHT_UP, LagState.RECENT, LagState.DETACHED})
FRESH_AT_ONCE = 200  # subscriptions on a page whose figures are computed for it

_FIELDS = sorted(["breaker", "label", "paused", AGE, *COUNTS, *STATES, *TEXTS])
_EXAMPLE = "heldBy=NO_CONSUMERS"


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list: by a field, which is one of ORDERS; the largest first if `descends`."""

    field: str = AGE
    descends: bool = True

    def __str__(self) -> str:
        return f"{self.field} {'desc' if self.descends else 'asc'}"


@dataclass(frozen=True, slots=True)
class Place:
    """The position in a list where a page begins.

    `began_at`: identifies the order, by the time at which its sample began (None: there is no order, and all
    subscriptions are listed by name).  `passed`: how many subscriptions of the order earlier pages have passed.
    `after`: the order has ended, and subscriptions that it does not contain follow after this name.
    """

    began_at: datetime | None = None
    passed: int = 0
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagPage:
    """A page that a caller asks for.

    `start`: where it begins (None: it is the first page).  `digest`: a digest of the order and the filter, which a
    page token belongs to.
    """

    size: int
    order: Order
    comparisons: tuple[TextComparison, ...]
    start: Place | None
    digest: str

    @property
    def is_of_one(self) -> bool:
        """Whether the filter matches one subscription at the most."""
        return any(map(is_name_of_one, self.comparisons))


def is_name_of_one(comparison: TextComparison) -> bool:
    """Returns whether a comparison matches one subscription at the most: that of a name."""
    field, operator, value = comparison
    return field == "name" and operator == "=" and not value.endswith("*")


def parse_lag_page(size: int, token: str, *, order_by: str, filter_text: str) -> LagPage:
    """Raises InvalidArgument."""
    order = parse_order(order_by)
    comparisons = tuple(parse_lag_filter(filter_text))
    digest = sha256(f"{order}\n{filter_text}".encode()).hexdigest()[:16]
    start = _parse_place(token, digest) if token else None
    return LagPage(size=check_page_size(size), order=order, comparisons=comparisons, start=start, digest=digest)


def place_values(page: LagPage, place: Place) -> tuple[str, bool, datetime, int, bool, str]:
    """Returns the values that the page token of a place contains."""
    has_order, has_ended = place.began_at is not None, place.after is not None
    return page.digest, has_order, place.began_at or _NEVER, place.passed, has_ended, place.after or ""


_NEVER = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _parse_place(token: str, digest: str) -> Place:
    of_list, has_order, began_at, passed, has_ended, after = parse_page_token(
        token, str, bool, datetime, int, bool, str
    )
    if of_list != digest or passed < 0 or "\0" in after:
        raise invalid_page_token(token)
    return Place(began_at if has_order else None, passed, after if has_ended else None)


def parse_order(text: str) -> Order:
    """Parses `orderBy`; if it is empty, the subscription with the oldest message comes first.  Raises
    InvalidArgument.
    """
    if not text.strip():
        return Order()
    field, *direction = text.split()
    if field not in ORDERS or direction not in ([], ["asc"], ["desc"]):
        fields = ", ".join(ORDERS)
        raise InvalidArgument(f"orderBy is one of {fields}, with asc or desc behind it (orderBy={text[:100]}).")
    return Order(field, direction == ["desc"])


def parse_lag_filter(text: str) -> list[TextComparison]:
    """Raises InvalidArgument."""
    comparisons = parse_list_filter(text, example=_EXAMPLE)
    for comparison in comparisons:
        _check(comparison)
    return comparisons


def _check(comparison: TextComparison) -> None:
    field, operator, value = comparison
    if field not in _FIELDS:
        raise refused_field(field, _FIELDS)
    is_text, is_number = field in TEXTS or field == "label", field in COUNTS or field == AGE
    if operator not in ("=", "!=") and not (operator == ":" and is_text) and not (operator != ":" and is_number):
        raise refused_operator(field, operator)
    if field in COUNTS:
        number_of(field, value)
    elif field == AGE:
        age_of(value)
    elif field in STATES:
        held: list[str] = [state for state in LagState if state not in HELD_BY_NOTHING]
        _one_of(field, value, held if field == "heldBy" else [NOT_SAMPLED, *LagState])
    elif field == "paused":
        _one_of(field, value, ["true", "false"])
    elif field == "breaker":
        _one_of(field, value, list(BREAKERS))


def _one_of(field: str, value: str, allowed: list[str]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"filter: {field} is one of {', '.join(allowed)}, not {value[:100]!r}.")


def number_of(field: str, value: str) -> float:
    """Parses a number that a filter compares with.  Raises InvalidArgument."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e18:
        raise InvalidArgument(f"filter: {field} is compared with a number, not with {value[:100]!r}.")
    return number


def age_of(value: str) -> float:
    """Parses a duration that a filter compares with, and returns its seconds.  Raises InvalidArgument."""
    return parse_duration(value, AGE).total_seconds()
