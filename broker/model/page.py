"""Pages of lists: their size, and the tokens from which a list continues."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec

from broker.model.errors import InvalidArgument

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000  # a larger pageSize is lowered to it, as Google's list methods do

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_ENCODED_AS = {int: _Int64, bool: bool, str: str, datetime: _Int64}

Item = TypeVar("Item")
Value = int | str | datetime


@dataclass(frozen=True, slots=True)
class Page:
    """The parameters of a page: at most `size` items with names greater than `after`.

    `only`: of these names (None: of all).
    """

    size: int
    after: str
    only: Collection[str] | None = None


def check_page_size(size: int) -> int:
    """The size of a page for which `size` was asked.  Raises InvalidArgument."""
    if size < 0:
        raise InvalidArgument(f"page_size must not be negative (page_size={size}).")
    return min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(*position: Value) -> str:
    """The token of the page that continues at a position in a list.  Clients must not interpret it."""
    values = [(value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value for value in position]
    return urlsafe_b64encode(msgspec.json.encode(values)).rstrip(b"=").decode()


def parse_page_token(token: str, *kinds: type[Value]) -> tuple[Any, ...]:
    """The position that `page_token` has encoded, if it consists of values of these kinds.  Raises InvalidArgument.

    Integers fit 64 bits, because positions are parameters of statements.
    """
    encoded: Any = tuple[tuple(_ENCODED_AS[kind] for kind in kinds)]  # type: ignore[misc]
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        values: tuple[Any, ...] = msgspec.json.decode(raw, type=encoded)
        return tuple(
            _EPOCH + value * _MICROSECOND if kind is datetime else value
            for kind, value in zip(kinds, values, strict=True)
        )
    except (ValueError, OverflowError):
        raise invalid_page_token(token) from None


def invalid_page_token(token: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid page token given (page_token={token}).")


def parse_page(size: int, token: str, *, prefix: str = "projects/") -> Page:
    """`prefix`: how each name begins.  Raises InvalidArgument for a negative size or a token that no list gave."""
    size = check_page_size(size)
    if not token:
        return Page(size, "")
    (after,) = parse_page_token(token, str)
    if "\0" in after or not after.startswith(prefix):
        raise invalid_page_token(token)
    return Page(size, after)


def cut_page(
    items: Sequence[Item], size: int, position: Callable[[Item], Value | tuple[Value, ...]]
) -> tuple[Sequence[Item], str]:
    """The items of a page, out of up to size + 1 that were read, and the token of the next ("" at the end).

    The token has the position of the last item given, not the next one's: it stays good whatever is deleted
    meanwhile.
    """
    if len(items) <= size:
        return items, ""
    given = items[:size]
    last = position(given[-1])
    return given, page_token(*last) if isinstance(last, tuple) else page_token(last)
