"""The details of an error (google.rpc), as JSON objects with an @type, which both APIs return."""

import math
import random
from collections.abc import Mapping
from typing import Any

from broker.model.errors import BrokerError

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def error_details(error: BrokerError) -> list[Mapping[str, Any]]:
    """The error's own, and if it is worth another try, when.

    That time is chosen by chance, within what the error allows: those who are refused together must not come back
    together.
    """
    details: list[Mapping[str, Any]] = list(error.details)
    if error.retry_seconds is not None:
        seconds = error.retry_seconds * random.uniform(*error.retry_spread)  # noqa: S311
        details.append({"@type": RETRY_INFO, "retryDelay": f"{math.ceil(seconds * 1000) / 1000:.3f}s"})
    return details
