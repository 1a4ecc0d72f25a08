"""The random part of a retry delay, so that what failed together is not retried together."""

import random
from collections.abc import Callable

MAX_JITTER = 0.1  # of the delay, on top of it: a message is never early (A4)

Jitter = Callable[[], float]


def retry_jitter() -> float:
    """Returns a new random number from 0 to 0.1."""
    return random.uniform(0, MAX_JITTER)  # noqa: S311  (spreads retries, protects nothing)
