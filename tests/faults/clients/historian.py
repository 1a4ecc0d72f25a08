"""Reads what the journals of subscriptions tell of their messages."""

import asyncio
import random
import time
from datetime import datetime

from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.history import History, Publish, Receive, Reported, Subscription, Timeline

_MOST = 40  # messages of a subscription, so that it takes some seconds
_AT_ONCE = 6


class Historian:
    def __init__(self, caller: RestCaller, history: History, dice: random.Random) -> None:
        self._caller, self._history, self._dice = caller, history, dice
        self._ahead = 0.0  # the wall clock, of ours

    async def read(self, subscription: Subscription) -> None:
        """Note the timelines of some of its messages; of all, where they are counted."""
        self._ahead = time.time() - now()
        ids = sorted(self._ids(subscription))
        self._dice.shuffle(ids)
        available = asyncio.Semaphore(_AT_ONCE)

        async def read(message_id: int) -> None:
            async with available:
                await self._read(subscription, message_id)

        await asyncio.gather(*map(read, ids if subscription.redriven else ids[:_MOST]))

    def _ids(self, subscription: Subscription) -> set[int]:
        """Of all that is known to have been for it."""
        ids: set[int] = set()
        for operation in self._history.operations:
            match operation:
                case Publish(outcome="ok", topic=subscription.topic):
                    if subscription.wanted.items() <= operation.attributes.items():
                        ids.update(operation.ids)
                case Receive(subscription=subscription.name):
                    ids.update(delivery.id for delivery in operation.deliveries)
        return ids

    async def _read(self, subscription: Subscription, message_id: int) -> None:
        began, name = now(), subscription.name
        answer = await self._caller.do("GET", f"subscriptions/{name}/messages/{message_id}", fine=[404])
        reported = [self._reported(entry) for entry in _of_journal(subscription, answer.get("timeline", []))]
        self._history.add(
            Timeline(who="historian", began=began, ended=now(), subscription=name, id=message_id, reported=reported)
        )

    def _reported(self, entry: Json) -> Reported:
        at = datetime.fromisoformat(entry["time"]).timestamp() - self._ahead
        return Reported(at, entry["event"], entry.get("deliveryAttempt", 0), entry.get("answer", ""))


def _of_journal(subscription: Subscription, entries: list[Json]) -> list[Json]:
    """Without the delivery that the record of deliveries adds where the journal has nothing of it.

    The record does not know who received the message, so that its hand-out has no client.
    """
    if subscription.tells_all:
        return entries
    handed_out = [entry for entry in entries if entry["event"] == "HANDED_OUT" and "client" not in entry]
    recorded = {entry["deliveryAttempt"] for entry in handed_out}
    return [
        entry
        for entry in entries
        if entry["event"] not in ("HANDED_OUT", "ACKED") or entry.get("deliveryAttempt") not in recorded
    ]
