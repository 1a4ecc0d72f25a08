"""The measures, by name, in the order in which they run: latency before load; last those with their own broker."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.bench import Bench
from benchmarks.flat_claims import flat_claims
from benchmarks.latency import latency
from benchmarks.limits import copy_limit, http_limit
from benchmarks.memory import memory
from benchmarks.peers import peers_drain_1, peers_drain_2, peers_publish_100, peers_publish_single
from benchmarks.push import push_latency, push_throughput
from benchmarks.push_bulkheads import bulkheads
from benchmarks.push_wide import pull_10000, push_10000
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
    "push-latency": push_latency,
    "publish-100": publish_100,
    "publish-1000": publish_1000,
    "publish-single": publish_single,
    "drain-1": drain_1,
    "drain-2": drain_2,
    "publish-and-drain": publish_and_drain,
    "subscriptions": many_subscriptions,
    "push-throughput": push_throughput,
    "bulkheads": bulkheads,
    "copy-limit": copy_limit,
    "http-limit": http_limit,
    "memory": memory,
    "push-10000": push_10000,
    "pull-10000": pull_10000,
    "flat-claims": flat_claims,
    "peers-publish-single": peers_publish_single,
    "peers-publish-100": peers_publish_100,
    "peers-drain-1": peers_drain_1,
    "peers-drain-2": peers_drain_2,
}
GROUPS: Mapping[str, Sequence[str]] = {
    "push": ("push-latency", "push-throughput", "bulkheads", "push-10000", "pull-10000"),
    "peers": ("peers-publish-single", "peers-publish-100", "peers-drain-1", "peers-drain-2"),
}
ONLY_IF_NAMED = frozenset(GROUPS["peers"])  # they take long, and measure others more than us
