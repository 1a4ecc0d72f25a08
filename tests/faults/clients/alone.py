"""One who does one thing after the other, each until it is answered, to what nobody else has a hand in.

So the checks know exactly what there is.  Where a try had no answer it waits until none of that can happen any
more: a process that was stopped may still do it some time later.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from tests.faults.checks.view import LATE_SECONDS
from tests.faults.clients.actor import Actor
from tests.faults.clients.rest import Answer, Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History

SURE_SECONDS = ACK_DEADLINE_SECONDS - 2.0  # an ack so soon after the pull is of what it names
_MOMENT_SECONDS = 0.1


class Alone(Actor):
    """The base of such actors."""

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._known: set[str] = set()  # operations

    async def _until_answered(
        self, path: str, body: Json | None = None, *, fine: int = 0, content: bytes | None = None
    ) -> tuple[Answer, int]:
        """And how many tries had no answer."""
        unanswered = 0
        while True:
            answer = await self._caller.call("POST", path, body, content=content)
            if answer.outcome == "ok" or (fine and answer.status == fine):
                return answer, unanswered
            unanswered += answer.outcome == "unknown"
            if answer.outcome == "failed" and answer.status != 429 and not self._caller.is_denied(answer):
                self._caller.unforeseen.append(f"{path}: {answer.body}")
                return answer, unanswered

    async def _change(self, path: str, body: Json) -> None:
        _, unanswered = await self._until_answered(path, body)
        await self._until_over(unanswered)

    async def _until_over(self, unanswered: int) -> None:
        if unanswered:
            await asyncio.sleep(LATE_SECONDS)

    async def _long(self, path: str, body: Json) -> tuple[Counter[str], int]:
        """The counts of all operations that it may have begun, once they have ended; and how many tries had no
        answer.
        """
        target, _, verb = path.rpartition("/")[2].partition(":")
        _, unanswered = await self._until_answered(path, body)
        await self._until_over(unanswered)
        counts: Counter[str] = Counter()
        listed = await self._caller.do("GET", "operations?pageSize=1000")
        for operation in listed.get("operations", ()):
            of = operation["metadata"]["verb"], operation["metadata"]["target"].rpartition("/")[2]
            if of != (verb, target) or operation["name"] in self._known:
                continue
            self._known.add(operation["name"])
            metadata = (await self._ended(operation["name"]))["metadata"]
            counts.update({name: int(count) for name, count in metadata["counts"].items()})
            if metadata["state"] != "SUCCEEDED" or int(metadata["done"]) != sum(
                map(int, metadata["counts"].values())
            ):
                self._caller.unforeseen.append(f"{path}: {metadata}")
        return counts, unanswered

    async def _ended(self, name: str) -> Json:
        path = "operations/" + name.rpartition("/")[2]
        while not (reported := await self._caller.do("POST", f"{path}:wait", {"timeout": "2s"}))["done"]:
            pass
        return reported

    async def _pull(self, subscription: str, most: int) -> list[Json] | None:
        """None: without an answer."""
        body = {"maxMessages": most, "returnImmediately": True}
        answer = await self._caller.call("POST", f"subscriptions/{subscription}:pull", body)
        return answer.body.get("receivedMessages", []) if answer.outcome == "ok" else None

    async def _is_left(self, subscription: str) -> bool:
        """Something waits, or is out; then a moment has passed."""
        position = await self._caller.do("GET", f"subscriptions/{subscription}/snapshot")
        out = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
        if not (int(position["undeliveredMessages"]) or out):
            return False
        await asyncio.sleep(_MOMENT_SECONDS)
        return True
