"""The measures, by name, in the order in which they run: latency before load; last those with their own broker."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.access import access
from benchmarks.before import before, before_push
from benchmarks.bench import Bench
from benchmarks.citus import citus, citus_any_node, citus_nodes
from benchmarks.console import console, console_pages
from benchmarks.deduplication import deduplication
from benchmarks.delay import delay
from benchmarks.flat_claims import flat_claims, flat_looking
from benchmarks.google_client import grpc_latency, grpc_publish, grpc_pull, grpc_streaming
from benchmarks.inspection import inspection
from benchmarks.latency import latency
from benchmarks.layers import profile
from benchmarks.limits import copy_limit, http_limit, select_limit
from benchmarks.memory import memory
from benchmarks.neighbours import neighbours
from benchmarks.one_port import rest_one_port
from benchmarks.overload import overload
from benchmarks.own_transaction import own_transaction
from benchmarks.peers import peers_drain_1, peers_drain_2, peers_publish_100, peers_publish_single
from benchmarks.priorities import priorities
from benchmarks.purges import purges
from benchmarks.push import push_latency, push_throughput
from benchmarks.push_bulkheads import bulkheads
from benchmarks.push_isolation import push_isolation, push_recovery
from benchmarks.push_wide import pull_10000, push_10000
from benchmarks.redrive import redrive
from benchmarks.report import Row
from benchmarks.resets import resets
from benchmarks.scale import scale_backlog, scale_waiting
from benchmarks.scale_bodies import scale_bodies
from benchmarks.scale_topics import scale_topics
from benchmarks.scaling import scaling
from benchmarks.schemas import schemas, schemas_of_others
from benchmarks.soak import soak
from benchmarks.subscriptions import many_subscriptions, subscriptions_100, subscriptions_1000
from benchmarks.throughput import drain_1, drain_2, publish_100, publish_1000, publish_and_drain, publish_single
from benchmarks.transfers import transfers
from benchmarks.transforms import transforms, transforms_of_others
from benchmarks.whole_lists import whole_lists

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
    "subscriptions-100": subscriptions_100,
    "subscriptions-1000": subscriptions_1000,
    "push-throughput": push_throughput,
    "bulkheads": bulkheads,
    "push-isolation": push_isolation,
    "push-recovery": push_recovery,
    "grpc-latency": grpc_latency,
    "grpc-publish": grpc_publish,
    "grpc-streaming": grpc_streaming,
    "grpc-pull": grpc_pull,
    "copy-limit": copy_limit,
    "select-limit": select_limit,
    "http-limit": http_limit,
    "rest-one-port": rest_one_port,
    "access": access,
    "before": before,
    "before-push": before_push,
    "deduplication": deduplication,
    "schemas": schemas,
    "schemas-of-others": schemas_of_others,
    "looking": inspection,
    "console": console,
    "console-pages": console_pages,
    "transforms": transforms,
    "transforms-of-others": transforms_of_others,
    "overload": overload,
    "citus": citus,
    "citus-any-node": citus_any_node,
    "citus-nodes": citus_nodes,
    "neighbours": neighbours,
    "redrive": redrive,
    "purges": purges,
    "resets": resets,
    "transfers": transfers,
    "delay": delay,
    "own-transaction": own_transaction,
    "priorities": priorities,
    "memory": memory,
    "push-10000": push_10000,
    "pull-10000": pull_10000,
    "flat-claims": flat_claims,
    "flat-looking": flat_looking,
    "whole-lists": whole_lists,
    "scale-backlog": scale_backlog,
    "scale-topics": scale_topics,
    "scale-bodies": scale_bodies,
    "scale-waiting": scale_waiting,
    "scaling": scaling,
    "soak": soak,
    "profile": profile,
    "peers-publish-single": peers_publish_single,
    "peers-publish-100": peers_publish_100,
    "peers-drain-1": peers_drain_1,
    "peers-drain-2": peers_drain_2,
}
_SPEED = (
    *("latency", "publish-100", "publish-1000", "publish-single", "drain-1", "drain-2", "publish-and-drain"),
    *("subscriptions-100", "subscriptions-1000", "copy-limit", "select-limit", "http-limit", "memory"),
)
_ACTING = ("redrive", "purges", "resets", "transfers")
_SCALE = ("scale-backlog", "scale-topics", "scale-bodies", "scale-waiting")
GROUPS: Mapping[str, Sequence[str]] = {
    "speed": _SPEED,
    "scale": _SCALE,
    "acting": _ACTING,
    "push": ("push-latency", "push-throughput", "bulkheads", "push-10000", "pull-10000"),
    "grpc": ("grpc-latency", "grpc-publish", "grpc-streaming", "grpc-pull", "rest-one-port"),
    "peers": ("peers-publish-single", "peers-publish-100", "peers-drain-1", "peers-drain-2"),
}
ONLY_IF_NAMED = frozenset(
    [
        *GROUPS["peers"],
        *_SCALE,
        *_ACTING,
        "whole-lists",
        "push-isolation",
        "push-recovery",
        "scaling",
        "soak",
        "profile",
        "before",
        "before-push",
    ]
) - {"redrive"}
# They take long; peers measure others, `before` another checkout.
