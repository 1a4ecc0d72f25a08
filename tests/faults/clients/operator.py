"""An operator: takes snapshots, seeks to them, and looks at positions."""

import asyncio
import random
from collections.abc import Sequence

from tests.faults.clients.gate import Gate
from tests.faults.clients.lease import now
from tests.faults.clients.rest import RestCaller
from tests.faults.history import History, Position, Seek, Snapshot

_KEPT = 3  # snapshots


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
        while not self.stopping.is_set():
            await self.look(self._dice.choice(self._subscriptions))
            for name, gate in self._gates.items():
                async with gate.quiet():
                    await self._snapshot_or_seek(name)
            try:
                await asyncio.wait_for(self.stopping.wait(), self._dice.uniform(0.5, 1.5) * self._pause)
            except TimeoutError:
                continue

    async def look(self, name: str, *, final: bool = False) -> Position:
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

    async def _snapshot_or_seek(self, name: str) -> None:
        taken = self._snapshots[name]
        if not taken or self._dice.random() < 0.5:
            taken.append(await self._take(name))
            if len(taken) > _KEPT:
                await self._caller.do("DELETE", f"snapshots/{taken.pop(0)}", fine=[404])
        else:
            await self._seek(name, self._dice.choice(taken))

    async def _take(self, name: str) -> str:
        self._count += 1
        snapshot = f"{name}-{self._count}"
        began = now()
        body = {"subscription": f"{self._caller.project}/subscriptions/{name}"}
        await self._caller.do("PUT", f"snapshots/{snapshot}", body, fine=[409])  # taken by a try without an answer
        self._history.add(Snapshot(who="operator", began=began, ended=now(), subscription=name, name=snapshot))
        return snapshot

    async def _seek(self, name: str, snapshot: str) -> None:
        """Every try is noted: one without an answer may still happen, and a later one too."""
        outcome = "unknown"
        body = {"snapshot": f"{self._caller.project}/snapshots/{snapshot}"}
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
            if answer.outcome == "failed":
                self._caller.unforeseen.append(f"seek: {answer.body}")
