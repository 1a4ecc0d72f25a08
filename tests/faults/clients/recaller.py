"""One who has messages again: resends them, seeks and undoes it, purges by a filter, replays them for an endpoint.

It publishes and consumes by itself: so the checks know exactly what the subscription has
(faults/checks/recalls.py).
"""

import asyncio
import base64
import random
from collections.abc import Sequence

from tests.faults.clients.alone import SURE_SECONDS, Alone
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History
from tests.faults.operations_of_one import Recall

_TOPIC, _SUBSCRIPTION = "load-recalled", "recalled"
_SETTINGS = {"extensions": {"deduplication": {"window": "86400s"}}, "messageRetentionDuration": "3600s"}
_EVER = "2020-01-01T00:00:00Z"
_MARKED = "attributes:marked"
_TAKEN, _ACKED = 20, 0.7  # messages of a pull; the share of these
_RESENT = 10  # messages of a call, at the most
_CLOCKS_SECONDS = 1.0  # apart, at the most
_NOWHERE = "http://127.0.0.1:9/nobody"
_END_SECONDS = 90.0


class Recaller(Alone):
    rate = 5.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._ids: list[int] = []
        self._path = f"subscriptions/{_SUBSCRIPTION}"
        self._may_undo = True

    async def _prepare(self) -> None:
        await self._caller.do("PUT", f"topics/{_TOPIC}", _SETTINGS, fine=[409])
        body = {
            "topic": f"{self._caller.project}/topics/{_TOPIC}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
        }
        await self._caller.do("PUT", self._path, body, fine=[409])

    async def _act(self) -> None:
        often, seldom = [self._write] * 4 + [self._take] * 6, [self._resend] * 2 + [self._purge, self._replay]
        await self._dice.choice([*often, *seldom, self._seek])()

    async def _end(self) -> None:
        """Take what is left, until nothing is."""
        began = now()
        while await self._take(all_of_it=True) or await self._is_left(_SUBSCRIPTION):
            assert now() < began + _END_SECONDS
        self._history.add(Recall(who="recaller", began=began, ended=now(), what="left"))
        await self._delete([_SUBSCRIPTION], [_TOPIC])

    async def _done(self, what: str, began: float, unanswered: int = 0, **fields: object) -> None:
        await self._until_over(unanswered)
        done = Recall(who="recaller", began=began, ended=now(), what=what, unanswered=unanswered, **fields)  # type: ignore[arg-type]
        self._history.add(done)

    # --- messages ----------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Repeats are known, so each is stored once."""
        is_marked = self._dice.random() < 0.4
        names = [f"recalled-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        messages = [
            {
                "data": base64.b64encode(name.encode()).decode(),
                "attributes": {"broker-dedup-id": name} | ({"marked": "yes"} if is_marked else {}),
            }
            for name in names
        ]
        began = now()
        answer, _ = await self._until_answered(f"topics/{_TOPIC}:publish", {"messages": messages})
        ids = [int(id_) for id_ in answer.body.get("messageIds", ())]
        self._ids += ids
        await self._done("wrote", began, ids=ids, marked=ids if is_marked else [])

    async def _take(self, *, all_of_it: bool = False) -> bool:
        """And ack some of it.  Whether anything came."""
        began = now()
        received = await self._pull(_SUBSCRIPTION, 1000 if all_of_it else _TAKEN)
        if not received:
            return received is None
        await self._done("took", began, ids=[int(each["message"]["messageId"]) for each in received])
        chosen = [each for each in received if all_of_it or self._dice.random() < _ACKED]
        if chosen:
            await self._until_answered(f"{self._path}:acknowledge", {"ackIds": [each["ackId"] for each in chosen]})
            what = "acked" if now() < began + SURE_SECONDS else "maybe acked"
            await self._done(what, began, ids=[int(each["message"]["messageId"]) for each in chosen])
        return True

    # --- acts --------------------------------------------------------------------------------------------------

    async def _resend(self) -> None:
        if not self._ids:
            return
        ids = self._dice.sample(self._ids, min(len(self._ids), self._dice.randint(1, _RESENT)))
        began = now()
        answer, unanswered = await self._until_answered(
            f"{self._path}:resend", {"messageIds": [str(id_) for id_ in ids]}
        )
        outcomes = {each["messageId"]: each["outcome"] for each in answer.body.get("results", ())}
        await self._done("resent", began, unanswered, ids=ids, outcomes=outcomes)

    async def _seek(self) -> None:
        """To the begin, so that all comes again; and mostly back."""
        began = now()
        body = {"time": _EVER, "undoable": True}
        _, unanswered = await self._until_answered(f"{self._path}:seek", body)
        self._may_undo &= not unanswered  # which of two it would undo nobody knows
        await self._done("sought", began, unanswered)
        if not self._may_undo:
            return
        for act in self._dice.choices((self._take, self._write), k=self._dice.randint(0, 3)):
            await act()
        began = now()
        _, unanswered = await self._until_answered(f"{self._path}:undoSeek", {}, fine=400)
        await self._done("undone", began, unanswered)

    async def _purge(self) -> None:
        body = {"filter": _MARKED, "maxMessagesPerSecond": self._dice.choice((20, 200))}
        await self._long_one("purged", f"{self._path}:purge", body)

    async def _replay(self) -> None:
        """For an endpoint that nobody is at, and that is paused at once; then it is pulled again."""
        await asyncio.sleep(_CLOCKS_SECONDS)
        await self._change(f"{self._path}:modifyPushConfig", {"pushConfig": {"pushEndpoint": _NOWHERE}})
        await self._change(f"{self._path}:pause", {})
        body = {"startTime": _EVER, "maxMessagesPerSecond": self._dice.choice((100, 1000))}
        await self._long_one("replayed", f"{self._path}:replayMissing", body)
        await self._change(f"{self._path}:modifyPushConfig", {"pushConfig": {}})
        await self._change(f"{self._path}:resume", {})

    async def _long_one(self, what: str, path: str, body: Json) -> None:
        began = now()
        counts, unanswered = await self._long(path, body)
        self._history.add(
            Recall(who="recaller", began=began, ended=now(), what=what, unanswered=unanswered, counts=counts)  # type: ignore[arg-type]
        )
