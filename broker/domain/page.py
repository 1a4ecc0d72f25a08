"""Pages of a list, ordered by name."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from broker.domain.errors import InvalidArgument

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000  # a larger pageSize is lowered to it, as Google's list methods do

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """Which page: at most `size` items with names greater than `after`."""

    size: int
    after: str


def check_page_size(size: int) -> int:
    """The size of a page for which `size` was asked.  Raises InvalidArgument."""
    if size < 0:
        raise InvalidArgument(f"page_size must not be negative (page_size={size}).")
    return min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def invalid_page_token(token: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid page token given (page_token={token}).")


def parse_page(size: int, token: str, *, prefix: str = "projects/") -> Page:
    """`prefix`: how each name begins.  Raises InvalidArgument for a negative size or a token that no list gave."""
    size = check_page_size(size)
    try:
        after = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except (Base64Error, UnicodeError, ValueError):
        raise invalid_page_token(token) from None
    if "\0" in after or (token and not after.startswith(prefix)):
        raise invalid_page_token(token)
    return Page(size, after)


def cut_page(items: Sequence[Item], page: Page, name: Callable[[Item], str]) -> tuple[Sequence[Item], str]:
    """The items of a page, out of up to size + 1 that were read, and the token of the next ("" at the end).

    The token is the last name given, not the next one's: it stays good whatever is deleted meanwhile.
    """
    if len(items) <= page.size:
        return items, ""
    given = items[: page.size]
    return given, urlsafe_b64encode(name(given[-1]).encode()).rstrip(b"=").decode()
