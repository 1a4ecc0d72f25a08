"""Trying again what lost against a concurrent change."""

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from broker.domain.errors import BrokerError

_ATTEMPTS = 3


def retrying(*errors: type[BrokerError]) -> AsyncRetrying:
    """Up to three attempts while one of `errors` is raised; the last one is the caller's.

    Only for work that changed nothing when it failed so, or that may be done twice.
    """
    return AsyncRetrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )
