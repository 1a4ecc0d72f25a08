"""The names of quotas, as the API and the settings have them."""

from typing import Literal

Rate = (
    Literal["publishRequests", "publishMessages", "publishBytes"]
    | Literal["subscribeRequests", "subscribeMessages", "subscribeBytes"]
)
Counted = Literal["topics", "subscriptions", "snapshots", "schemas"]
Amount = Literal["retainedBytes", "connections"]

# Each API's calls, and what they move: requests, messages, bytes, in this order everywhere.
PUBLISH: tuple[Rate, Rate, Rate] = ("publishRequests", "publishMessages", "publishBytes")
SUBSCRIBE: tuple[Rate, Rate, Rate] = ("subscribeRequests", "subscribeMessages", "subscribeBytes")
RATES = (*PUBLISH, *SUBSCRIBE)
COUNTS: tuple[Counted, ...] = ("topics", "subscriptions", "snapshots", "schemas")
AMOUNTS: tuple[Amount, ...] = ("retainedBytes", "connections")
QUOTAS = (*RATES, *COUNTS, *AMOUNTS)
