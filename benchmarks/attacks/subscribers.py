"""Consumers that make work: thousands of ordering keys that are taken and given back; snapshots and seeks."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence

from benchmarks.attacks.caller import Caller
from benchmarks.calls import ACK_ID

_KEY_CALLERS, _SNAPSHOT_CALLERS = 8, 16
_MESSAGES = 1_000  # of a publish, and of a response
_FULL_FORCE_SECONDS = 5.0
_PROJECT = "projects/greedy"


async def ordering_keys(host: str, port: int, ready: Callable[[], None]) -> None:
    """Each message has a key of its own; half of a response is acked, half is nacked."""
    callers = [Caller(host, port) for _ in range(_KEY_CALLERS)]
    keyed = [{"data": "eA==", "orderingKey": f"key-{number}"} for number in range(_MESSAGES)]
    for number, caller in enumerate(callers):
        await _prepare(caller, f"keys-{number}", enableMessageOrdering=True)
    await _go_on([_keys_for_ever(caller, f"keys-{number}", keyed) for number, caller in enumerate(callers)], ready)


async def _keys_for_ever(caller: Caller, name: str, messages: Sequence[Mapping[str, str]]) -> None:
    while True:
        await caller.call("POST", f"{_topic(name)}:publish", {"messages": messages})
        ack_ids = await _response(caller, name)
        await caller.call("POST", f"{_subscription(name)}:acknowledge", {"ackIds": ack_ids[::2]})
        nacks = {"ackIds": ack_ids[1::2], "ackDeadlineSeconds": 0}
        await caller.call("POST", f"{_subscription(name)}:modifyAckDeadline", nacks)


async def snapshots_and_seeks(host: str, port: int, ready: Callable[[], None]) -> None:
    """Take a snapshot of much that is out, seek to it, delete it, and again."""
    callers = [Caller(host, port) for _ in range(_SNAPSHOT_CALLERS)]
    for number, caller in enumerate(callers):
        await _prepare(caller, f"snapshots-{number}")
        messages = [{"data": "eA=="}] * _MESSAGES
        await caller.call("POST", f"{_topic(f'snapshots-{number}')}:publish", {"messages": messages})
    await _go_on(
        [_snapshots_for_ever(caller, f"snapshots-{number}") for number, caller in enumerate(callers)], ready
    )


async def _snapshots_for_ever(caller: Caller, name: str) -> None:
    snapshot = f"{_PROJECT}/snapshots/{name}"
    while True:
        await _response(caller, name)
        await caller.call("PUT", snapshot, {"subscription": _subscription(name)})
        await caller.call("POST", f"{_subscription(name)}:seek", {"snapshot": snapshot})
        await caller.call("DELETE", snapshot)


async def _go_on(attacks: Sequence[Coroutine[None, None, None]], ready: Callable[[], None]) -> None:
    tasks = [asyncio.create_task(attack) for attack in attacks]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _prepare(caller: Caller, name: str, **options: object) -> None:
    await caller.call("PUT", _topic(name))
    await caller.call("PUT", _subscription(name), {"topic": _topic(name), **options})


async def _response(caller: Caller, name: str) -> list[str]:
    pull = {"maxMessages": _MESSAGES, "returnImmediately": True}
    return [id_.decode() for id_ in ACK_ID.findall(await caller.call("POST", f"{_subscription(name)}:pull", pull))]


def _topic(name: str) -> str:
    return f"{_PROJECT}/topics/{name}"


def _subscription(name: str) -> str:
    return f"{_PROJECT}/subscriptions/{name}"
