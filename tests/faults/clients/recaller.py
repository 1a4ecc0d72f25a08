"""One who has messages again: resends them, seeks and undoes it, purges by a filter, replays them for an endpoint.

It publishes and consumes by itself, and does one thing after the other, each until it is answered: so the checks
know exactly what the subscription has (checks/recalls.py).  Where a try had no answer it waits until none of that
can happen any more.
"""

import asyncio
import base64
import itertools
import random
from collections import Counter
from collections.abc import Sequence

from tests.faults.checks.view import LATE_SECONDS
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Answer, Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, EVENTS, Plan
from tests.faults.history import History, Recall

_TOPIC, _SUBSCRIPTION = "load-recalled", "recalled"
_SETTINGS = {"extensions": {"deduplication": {"window": "86400s"}}, "messageRetentionDuration": "3600s"}
_EVER = "2020-01-01T00:00:00Z"
_MARKED = "attributes:marked"
_RATE = 5.0  # things that it does a second
_TAKEN, _ACKED = 20, 0.7  # messages of a pull; the share of these
_RESENT = 10  # messages of a call, at the most
_SURE_SECONDS = ACK_DEADLINE_SECONDS - 2.0  # an ack so soon after the pull is of what it names
_CLOCKS_SECONDS = 1.0  # apart, at the most
_NOWHERE = "http://127.0.0.1:9/nobody"
_END_SECONDS = 90.0


class Recaller:
    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        self._caller, self._history, self._dice = caller, history, dice
        self._on = any(plan.terms.topic == EVENTS for plan in plans)  # older releases do nothing of this
        self._count = itertools.count()
        self._ids: list[int] = []
        self._path = f"subscriptions/{_SUBSCRIPTION}"
        self._may_undo = True
        self._known: set[str] = set()  # operations
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        if not self._on:
            return
        await self._caller.do("PUT", f"topics/{_TOPIC}", _SETTINGS, fine=[409])
        body = {
            "topic": f"{self._caller.project}/topics/{_TOPIC}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
        }
        await self._caller.do("PUT", self._path, body, fine=[409])
        often, seldom = [self._write] * 4 + [self._take] * 6, [self._resend] * 2 + [self._purge, self._replay]
        while not self.stopping.is_set():
            await self._dice.choice([*often, *seldom, self._seek])()
            await asyncio.sleep(self._dice.expovariate(_RATE))

    async def mend(self) -> None:
        """Once: take what is left, until nothing is."""
        if not self._on:
            return
        self._on = False
        began = now()
        while await self._take(all_of_it=True) or await self._is_left():
            assert now() < began + _END_SECONDS
        self._history.add(Recall(who="recaller", began=began, ended=now(), what="left"))
        await self._caller.do("DELETE", self._path, fine=[404])
        await self._caller.do("DELETE", f"topics/{_TOPIC}", fine=[404])

    async def _is_left(self) -> bool:
        position = await self._caller.do("GET", f"{self._path}/snapshot")
        out = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
        if int(position["undeliveredMessages"]) or out:
            await asyncio.sleep(0.1)
            return True
        return False

    async def _until_answered(self, path: str, body: Json, *, fine: int = 0) -> tuple[Answer, int]:
        """And how many tries had no answer."""
        unanswered = 0
        while True:
            answer = await self._caller.call("POST", path, body)
            if answer.outcome == "ok" or (fine and answer.status == fine):
                return answer, unanswered
            unanswered += answer.outcome == "unknown"
            if answer.outcome == "failed" and answer.status != 429 and not self._caller.is_denied(answer):
                self._caller.unforeseen.append(f"{path}: {answer.body}")
                return answer, unanswered

    async def _done(self, what: str, began: float, unanswered: int = 0, **fields: object) -> None:
        if unanswered:
            await asyncio.sleep(LATE_SECONDS)
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
        body = {"maxMessages": 1000 if all_of_it else _TAKEN, "returnImmediately": True}
        answer = await self._caller.call("POST", f"{self._path}:pull", body)
        received = answer.body.get("receivedMessages", [])
        if not received:
            return answer.outcome != "ok"
        await self._done("took", began, ids=[int(each["message"]["messageId"]) for each in received])
        chosen = [each for each in received if all_of_it or self._dice.random() < _ACKED]
        if chosen:
            await self._until_answered(f"{self._path}:acknowledge", {"ackIds": [each["ackId"] for each in chosen]})
            what = "acked" if now() < began + _SURE_SECONDS else "maybe acked"
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
        await self._long("purged", "purge", f"{self._path}:purge", body)

    async def _replay(self) -> None:
        """For an endpoint that nobody is at, and that is paused at once; then it is pulled again."""
        await asyncio.sleep(_CLOCKS_SECONDS)
        await self._change("modifyPushConfig", {"pushConfig": {"pushEndpoint": _NOWHERE}})
        await self._change("pause", {})
        body = {"startTime": _EVER, "maxMessagesPerSecond": self._dice.choice((100, 1000))}
        await self._long("replayed", "replayMissing", f"{self._path}:replayMissing", body)
        await self._change("modifyPushConfig", {"pushConfig": {}})
        await self._change("resume", {})

    async def _change(self, verb: str, body: Json) -> None:
        _, unanswered = await self._until_answered(f"{self._path}:{verb}", body)
        if unanswered:
            await asyncio.sleep(LATE_SECONDS)

    async def _long(self, what: str, verb: str, path: str, body: Json) -> None:
        """Until all of it that may have been begun has ended."""
        began = now()
        _, unanswered = await self._until_answered(path, body)
        if unanswered:
            await asyncio.sleep(LATE_SECONDS)
        counts: Counter[str] = Counter()
        listed = await self._caller.do("GET", "operations?pageSize=1000")
        for operation in listed.get("operations", ()):
            of = operation["metadata"]["verb"], operation["metadata"]["target"].rpartition("/")[2]
            if of != (verb, _SUBSCRIPTION) or operation["name"] in self._known:
                continue
            self._known.add(operation["name"])
            metadata = (await self._ended(operation["name"]))["metadata"]
            counts.update({name: int(count) for name, count in metadata["counts"].items()})
            if metadata["state"] != "SUCCEEDED":
                self._caller.unforeseen.append(f"{path}: {metadata}")
        self._history.add(
            Recall(who="recaller", began=began, ended=now(), what=what, unanswered=unanswered, counts=counts)  # type: ignore[arg-type]
        )

    async def _ended(self, name: str) -> Json:
        path = "operations/" + name.rpartition("/")[2]
        while not (told := await self._caller.do("POST", f"{path}:wait", {"timeout": "2s"}))["done"]:
            pass
        return told
