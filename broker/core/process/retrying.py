"""Retries transactions that lost against a concurrent change."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from broker.model.errors import BrokerError

T = TypeVar("T")

_MORE_ATTEMPTS = 2
_TOO_LONG_SECONDS = 5.0


async def retrying(work: Callable[[], Awaitable[T]], *errors: type[BrokerError]) -> T:
    """`work()`, up to twice more if it raises one of `errors`; the last one is the caller's.

    So is the first if it took 5 seconds to come: the database does not answer, and the caller has waited enough.
    Only for work that changed nothing when it failed so, or that may be done twice.
    """
    began = time.monotonic()
    try:
        return await work()  # tenacity's bookkeeping would cost as much as a small statement, each time
    except errors:
        if time.monotonic() - began > _TOO_LONG_SECONDS:
            raise
    again = AsyncRetrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(_MORE_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )

    async def attempt() -> T:
        return await work()  # `work` itself may be a lambda, whose coroutine tenacity would return unawaited

    return await again(attempt)
