"""An operator: takes snapshots, seeks to them and to a time, and looks at positions."""

import asyncio
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.faults.clients.gate import Gate
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.history import History, Position, Seek, Snapshot

_KEPT = 3  # snapshots
_TO_BEGIN = 0.5  # of the seeks
_BEFORE_SECONDS = 1.0  # further than clocks are apart


class Operator:
    """`gates`: of the subscriptions to seek in, by name."""

    def __init__(
        self,
        caller: RestCaller,
        history: History,
        dice: random.Random,
        gates: dict[str, Gate],
        subscriptions: Sequence[str],
        *,
        pause: float,
    ) -> None:
        """`pause`: seconds between two things it does, about."""
        self._caller, self._history, self._dice = caller, history, dice
        self._gates, self._subscriptions, self._pause = gates, subscriptions, pause
        self._snapshots: dict[str, list[str]] = {name: [] for name in gates}
        self._count = 0
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """The last that it does is a seek: no later one is to blame for what that one does not bring back."""
        began = self._note_begin()
        while not self.stopping.is_set():
            await self.check(self._dice.choice(self._subscriptions))
            for name, gate in self._gates.items():
                async with gate.quiet():
                    if not self._snapshots[name] or self._dice.random() < 0.5:
                        await self._take(name)
                    else:
                        await self._seek_somewhere(name, began)
            try:
                await asyncio.wait_for(self.stopping.wait(), self._dice.uniform(0.5, 1.5) * self._pause)
            except TimeoutError:
                continue
        for name, gate in self._gates.items():
            async with gate.quiet():
                await self._seek_somewhere(name, began)

    async def check(self, name: str, *, final: bool = False) -> Position:
        """How much is left of a subscription."""
        began = now()
        answer = await self._caller.do("GET", f"subscriptions/{name}/snapshot")
        position = Position(
            who="operator",
            began=began,
            ended=now(),
            subscription=name,
            undelivered=int(answer["undeliveredMessages"]),
            outstanding=sum(int(shard["outstandingMessages"]) for shard in answer["shards"]),
            final=final,
        )
        self._history.add(position)
        return position

    def _note_begin(self) -> str:
        """A time before all publishes.  To seek to it is as to seek to a snapshot in which nothing was acked."""
        at = now()
        for name in self._gates:
            self._history.add(Snapshot(who="operator", began=at, ended=at, subscription=name, name=_begin_of(name)))
        return datetime.fromtimestamp(time.time() - _BEFORE_SECONDS, UTC).isoformat()

    async def _seek_somewhere(self, name: str, began: str) -> None:
        taken = self._snapshots[name]
        if not taken or self._dice.random() < _TO_BEGIN:
            await self._seek(name, _begin_of(name), {"time": began})
        else:
            snapshot = self._dice.choice(taken)
            await self._seek(name, snapshot, {"snapshot": f"{self._caller.project}/snapshots/{snapshot}"})

    async def _take(self, name: str) -> None:
        self._count += 1
        snapshot = f"{name}-{self._count}"
        began = now()
        body = {"subscription": f"{self._caller.project}/subscriptions/{name}"}
        await self._caller.do("PUT", f"snapshots/{snapshot}", body, fine=[409])  # taken by a try without an answer
        self._history.add(Snapshot(who="operator", began=began, ended=now(), subscription=name, name=snapshot))
        taken = self._snapshots[name]
        taken.append(snapshot)
        if len(taken) > _KEPT:
            await self._caller.do("DELETE", f"snapshots/{taken.pop(0)}", fine=[404])

    async def _seek(self, name: str, snapshot: str, body: Json) -> None:
        """Every try is noted: one without an answer may still happen, and a later one too."""
        outcome = "unknown"
        while outcome == "unknown":
            began = now()
            answer = await self._caller.call("POST", f"subscriptions/{name}:seek", body)
            outcome = answer.outcome
            self._history.add(
                Seek(
                    who="operator",
                    began=began,
                    ended=now(),
                    outcome=answer.outcome,
                    subscription=name,
                    snapshot=snapshot,
                )
            )
            if answer.outcome == "failed" and not self._caller.is_denied(answer):
                self._caller.unforeseen.append(f"seek: {answer.body}")


def _begin_of(subscription: str) -> str:
    """Its name in histories."""
    return f"{subscription}-begin"
