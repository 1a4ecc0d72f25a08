"""What a message is told that is not as its schema says."""

from collections.abc import Callable, Iterable


class Mismatch(Exception):
    """`str()` says where in the message and why."""


class TooLarge(Mismatch):
    """It cannot be told what the message is like; another revision would not do better."""


def all_pass(check: Callable[[bytes, str], None], messages: Iterable[bytes], encoding: str) -> bool:
    """Whether `check`, which raises Mismatch, takes all of them."""
    try:
        for data in messages:
            check(data, encoding)
    except Mismatch:
        return False
    return True
