"""Acks: of 300 subscriptions, each on a topic of its own, and of messages that were extended one by one."""

import asyncio
from collections.abc import Callable

from benchmarks.attacks.caller import Caller
from benchmarks.calls import ACK_ID

_SUBSCRIPTIONS = 300
_CLIENTS, _CALLS_AT_ONCE = 4, 8
_MESSAGES = 1_000  # of a response
_SECONDS = 600
_PROJECT = "projects/greedy"


async def many_acks(host: str, port: int, ready: Callable[[], None]) -> None:
    """Each subscription acks message after message, without a pause."""
    callers = [Caller(host, port) for _ in range(_SUBSCRIPTIONS)]
    names = [f"acks-{number}" for number in range(_SUBSCRIPTIONS)]
    waiting = await asyncio.gather(*map(_prepare, callers, names))
    ready()
    await asyncio.gather(*map(_ack_for_ever, callers, names, waiting))


async def _ack_for_ever(caller: Caller, name: str, ack_ids: list[str]) -> None:
    while True:
        for ack_id in ack_ids:
            await caller.call("POST", f"{_subscription(name)}:acknowledge", {"ackIds": [ack_id]})
        ack_ids = await _response(caller, name)


async def single_extensions(host: str, port: int, ready: Callable[[], None]) -> None:
    """With exactly-once delivery all messages of a response are extended one by one, and acked one by one."""
    clients = [[Caller(host, port) for _ in range(_CALLS_AT_ONCE)] for _ in range(_CLIENTS)]
    names = [f"extensions-{number}" for number in range(_CLIENTS)]
    extended = asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(_extend_for_ever(callers, name, extended))
        for callers, name in zip(clients, names, strict=True)
    ]
    for _ in names:
        await extended.acquire()
    ready()
    await asyncio.gather(*tasks)


async def _extend_for_ever(callers: list[Caller], name: str, extended: asyncio.Semaphore) -> None:
    ack_ids = await _prepare(callers[0], name, enableExactlyOnceDelivery=True)
    while True:
        await _one_by_one(callers, name, "modifyAckDeadline", ack_ids, ackDeadlineSeconds=_SECONDS)
        extended.release()
        await _one_by_one(callers, name, "acknowledge", ack_ids)
        ack_ids = await _response(callers[0], name)


async def _one_by_one(callers: list[Caller], name: str, verb: str, ack_ids: list[str], **body: object) -> None:
    left = iter(ack_ids)

    async def some(caller: Caller) -> None:
        for ack_id in left:
            await caller.call("POST", f"{_subscription(name)}:{verb}", {"ackIds": [ack_id], **body})

    await asyncio.gather(*map(some, callers))


async def _prepare(caller: Caller, name: str, **options: object) -> list[str]:
    await caller.call("PUT", _topic(name))
    body = {"topic": _topic(name), "ackDeadlineSeconds": _SECONDS, **options}
    await caller.call("PUT", _subscription(name), body)
    return await _response(caller, name)


async def _response(caller: Caller, name: str) -> list[str]:
    """The ack ids of as many new messages."""
    await caller.call("POST", f"{_topic(name)}:publish", {"messages": [{"data": "eA=="}] * _MESSAGES})
    answer = await caller.call("POST", f"{_subscription(name)}:pull", {"maxMessages": _MESSAGES})
    return [ack_id.decode() for ack_id in ACK_ID.findall(answer)]


def _topic(name: str) -> str:
    return f"{_PROJECT}/topics/{name}"


def _subscription(name: str) -> str:
    return f"{_PROJECT}/subscriptions/{name}"
