"""A storm of dead letters: consumers nack all that they get, of subscriptions that give up after five times."""

import asyncio
from collections.abc import Callable

from benchmarks.attacks.caller import Caller
from benchmarks.calls import ACK_ID

_SUBSCRIPTIONS = 8
_MESSAGES = 1_000  # of a response
_BATCHES = 5  # at a time
_PROJECT = "projects/greedy"
_DEAD_LETTERS = f"{_PROJECT}/topics/dead-letters"


async def dead_letter_storm(host: str, port: int, ready: Callable[[], None]) -> None:
    callers = [Caller(host, port) for _ in range(_SUBSCRIPTIONS)]
    await callers[0].call("PUT", _DEAD_LETTERS)
    await callers[0].call("PUT", f"{_PROJECT}/subscriptions/dead-letters", {"topic": _DEAD_LETTERS})
    policy = {"deadLetterTopic": _DEAD_LETTERS, "maxDeliveryAttempts": 5}
    for number, caller in enumerate(callers):
        topic = f"{_PROJECT}/topics/storm-{number}"
        await caller.call("PUT", topic)
        await caller.call("PUT", _subscription(number), {"topic": topic, "deadLetterPolicy": policy})
    tasks = [asyncio.create_task(_nack_for_ever(caller, number)) for number, caller in enumerate(callers)]
    await asyncio.sleep(5)  # until the first are given up
    ready()
    await asyncio.gather(*tasks)


async def _nack_for_ever(caller: Caller, number: int) -> None:
    body = {"messages": [{"data": "eA=="}] * _MESSAGES}
    pull = {"maxMessages": _MESSAGES, "returnImmediately": True}
    while True:
        for _ in range(_BATCHES):
            await caller.call("POST", f"{_PROJECT}/topics/storm-{number}:publish", body)
        while answer := ACK_ID.findall(await caller.call("POST", f"{_subscription(number)}:pull", pull)):
            nack = {"ackIds": [ack_id.decode() for ack_id in answer], "ackDeadlineSeconds": 0}
            await caller.call("POST", f"{_subscription(number)}:modifyAckDeadline", nack)


def _subscription(number: int) -> str:
    return f"{_PROJECT}/subscriptions/storm-{number}"
