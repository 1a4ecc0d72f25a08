"""The measures, by name, in the order in which they run: latency before load; last those with their own broker."""

from collections.abc import Callable, Mapping

from benchmarks.bench import Bench
from benchmarks.flat_claims import flat_claims
from benchmarks.latency import latency
from benchmarks.limits import copy_limit, http_limit
from benchmarks.memory import memory
from benchmarks.report import Row
from benchmarks.throughput import (
    drain_1,
    drain_2,
    many_subscriptions,
    publish_100,
    publish_1000,
    publish_and_drain,
    publish_single,
)

MEASURES: Mapping[str, Callable[[Bench], list[Row]]] = {
    "latency": latency,
    "publish-100": publish_100,
    "publish-1000": publish_1000,
    "publish-single": publish_single,
    "drain-1": drain_1,
    "drain-2": drain_2,
    "publish-and-drain": publish_and_drain,
    "subscriptions": many_subscriptions,
    "copy-limit": copy_limit,
    "http-limit": http_limit,
    "memory": memory,
    "flat-claims": flat_claims,
}
