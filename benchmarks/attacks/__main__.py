"""`python -m benchmarks.attacks NAME HOST PORT`: attack a broker, in a process of its own, until it is ended.

Says "ready" once the attack goes on with full force.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

from benchmarks.attacks.access import changes_of_access
from benchmarks.attacks.acks import many_acks, single_extensions
from benchmarks.attacks.answers import unread_answers
from benchmarks.attacks.dead_letters import dead_letter_storm
from benchmarks.attacks.filters import seek_and_filter
from benchmarks.attacks.functions import hostile_functions
from benchmarks.attacks.processors import eight_threads, two_threads
from benchmarks.attacks.publishes import large_bodies, publish_flood, refused_calls, used_up_quota
from benchmarks.attacks.pulls import pulls_that_wait
from benchmarks.attacks.pushes import changed_endpoints, hanging_endpoints, slow_endpoints
from benchmarks.attacks.schedules import many_schedules
from benchmarks.attacks.schemas import slow_schemas
from benchmarks.attacks.strangers import compressed_strangers, many_elements, unfinished_requests
from benchmarks.attacks.subscribers import ordering_keys, snapshots_and_seeks
from benchmarks.attacks.trials import filters_on_trial

# Each gets host, port and what to call when it is at full force; it goes on until it is cancelled.
ATTACKS: Mapping[str, Callable[[str, int, Callable[[], None]], Awaitable[None]]] = {
    "filters": seek_and_filter,
    "pulls": pulls_that_wait,
    "acks": many_acks,
    "extensions": single_extensions,
    "dead letters": dead_letter_storm,
    "hanging endpoints": hanging_endpoints,
    "changed endpoints": changed_endpoints,
    "slow endpoints": slow_endpoints,
    "large bodies": large_bodies,
    "publish flood": publish_flood,
    "used-up quota": used_up_quota,
    "refused calls": refused_calls,
    "filters on trial": filters_on_trial,
    "ordering keys": ordering_keys,
    "snapshots and seeks": snapshots_and_seeks,
    "hostile functions": hostile_functions,
    "unread answers": unread_answers,
    "slow schemas": slow_schemas,
    "schedules": many_schedules,
    "compressed strangers": compressed_strangers,
    "many elements": many_elements,
    "unfinished requests": unfinished_requests,
    "changes of access": changes_of_access,
    "a machine with 2 busy threads": two_threads,
    "a machine with 8 busy threads": eight_threads,
}
# Attacks on a broker with authentication.
GUARDED = frozenset({"compressed strangers", "many elements", "unfinished requests", "changes of access"})


def _ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    name, host, port = sys.argv[1:]
    asyncio.run(ATTACKS[name](host, int(port), _ready))  # type: ignore[arg-type]
