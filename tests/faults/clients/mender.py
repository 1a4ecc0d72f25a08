"""A second operator, who acts: redrives and discards dead letters, purges, copies a topic, and ends some of it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.clients.actor import Actor
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import Plan, filter_of
from tests.faults.history import Copy, Discard, History, Purge, Redrive

_MOST_COPIES = 3  # each is delivered once more, all of it
_MOST_DISCARDED = 3  # of a call
_CANCELLED = 0.15  # the share of long work that is ended before its end
_RATES = {"redrive": (20.0, 20.0, 200.0), "copy": (80.0, 400.0)}  # messages a second
_WAIT_SECONDS = 2


@dataclass(slots=True)
class _Asked:
    """Long work that was asked for, and not answered or not seen to end yet."""

    work: Redrive | Copy
    verb: str
    path: str


class Mender(Actor):
    """Long work is done one after the other, so what came of each can be told.

    Older releases do all this as well, so it acts beside them.
    """

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._redriven = [plan.name for plan in plans if plan.terms.redriven]
        self._purged = [plan.name for plan in plans if plan.purged]
        self._copied = [plan for plan in plans if plan.terms.copies]
        self._copies = 0
        self._known: set[str] = set()  # operations
        self._unanswered: list[_Asked] = []

    async def run(self) -> None:
        acts = [self._redrive] * 4 * bool(self._redriven) + [self._discard] * 2 * bool(self._redriven)
        acts += [self._purge] * bool(self._purged) + [self._copy] * bool(self._copied)
        while acts and not self.stopping.is_set():
            try:
                await asyncio.wait_for(self.stopping.wait(), self._dice.uniform(0.5, 1.5) * self._pause)
            except TimeoutError:
                await self._dice.choice(acts)()

    async def mend(self) -> None:
        """Once all is well again: see to the end of what was begun, and bring all back that was given up."""
        await self._find_unanswered()
        for name in self._redriven:
            await self._start(_redrive_of(name), {}, may_end=False)

    # --- long work ---------------------------------------------------------------------------------------------

    async def _redrive(self) -> None:
        await self._start(_redrive_of(self._dice.choice(self._redriven)), self._rate("redrive"))

    async def _copy(self) -> None:
        if self._copies >= _MOST_COPIES:
            return
        self._copies += 1
        terms = self._dice.choice(self._copied).terms
        work = Copy(who="mender", began=now(), ended=0.0, topic=terms.copies, target=terms.topic)
        target = f"{self._caller.project}/topics/{terms.topic}"
        body = self._rate("copy") | {"targetTopic": target, "filter": filter_of(terms.wanted)}
        await self._start(_Asked(work, "copy", f"topics/{terms.copies}:copy"), body)

    def _rate(self, verb: str) -> Json:
        """Slow enough that faults fall into it."""
        return {"maxMessagesPerSecond": self._dice.choice(_RATES[verb])}

    async def _start(self, asked: _Asked, body: Json, *, may_end: bool = True) -> None:
        asked.work.began = now()
        answer = await self._caller.call("POST", asked.path, body)
        asked.work.ended = now()
        if answer.outcome == "ok":
            await self._see_to(asked, answer.body["name"], may_end=may_end)
        elif answer.outcome == "unknown":
            self._unanswered.append(asked)
            await self._find_unanswered()
        elif not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"{asked.path}: {answer.body}")

    async def _find_unanswered(self) -> None:
        """See to the operations of calls that had no answer.  A broker that was stopped may begin one late."""
        if not self._unanswered:
            return
        listed = await self._caller.do("GET", "operations?pageSize=1000")
        for operation in listed.get("operations", ()):
            of = operation["metadata"]["verb"], operation["metadata"]["target"].rpartition("/")[2]
            asked = [each for each in self._unanswered if of == (each.verb, _target(each))]
            if operation["name"] not in self._known and asked:
                self._unanswered.remove(asked[0])
                await self._see_to(asked[0], operation["name"], may_end=False)

    async def _see_to(self, asked: _Asked, name: str, *, may_end: bool) -> None:
        """Until it has ended, or is made to."""
        self._known.add(name)
        path = "operations/" + name.rpartition("/")[2]
        if may_end and self._dice.random() < _CANCELLED:
            await asyncio.sleep(self._dice.uniform(0.0, 2.0))
            await self._caller.do("POST", f"{path}:cancel", {})
        reported: Json = {}
        while not reported.get("done"):
            reported = await self._caller.do("POST", f"{path}:wait", {"timeout": f"{_WAIT_SECONDS}s"})
        work, metadata = asked.work, reported["metadata"]
        work.name, work.state, work.done = name, metadata["state"], int(metadata["done"])
        work.counts = {outcome: int(count) for outcome, count in metadata["counts"].items()}
        work.ended = now()
        self._history.add(work)
        if work.state == "FAILED":
            self._caller.unforeseen.append(f"{asked.path}: {reported}")

    # --- at once -----------------------------------------------------------------------------------------------

    async def _purge(self) -> None:
        name = self._dice.choice(self._purged)
        began = now()
        answer = await self._caller.call("POST", f"subscriptions/{name}:purge", {})
        self._history.add(Purge(who="mender", began=began, ended=now(), outcome=answer.outcome, subscription=name))
        if answer.outcome == "failed" and not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"purge: {answer.body}")

    async def _discard(self) -> None:
        name = self._dice.choice(self._redriven)
        listed = await self._caller.call("GET", f"subscriptions/{name}/deadLetters?pageSize=100")
        ids = [int(dead_letter["sourceMessageId"]) for dead_letter in listed.body.get("deadLetters", ())]
        if not ids:
            return
        ids = self._dice.sample(ids, min(len(ids), self._dice.randint(1, _MOST_DISCARDED)))
        began = now()
        body = {"messageIds": [str(each) for each in ids]}
        answer = await self._caller.call("POST", f"subscriptions/{name}:discard", body)
        outcomes = {each["messageId"]: each["outcome"] for each in answer.body.get("results", ())}
        self._history.add(
            Discard(
                who="mender",
                began=began,
                ended=now(),
                outcome=answer.outcome,
                subscription=name,
                ids=ids,
                outcomes=outcomes,
            )
        )
        if answer.outcome == "failed" and not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"discard: {answer.body}")


def _redrive_of(name: str) -> _Asked:
    work = Redrive(who="mender", began=now(), ended=0.0, subscription=name)
    return _Asked(work, "redrive", f"subscriptions/{name}:redrive")


def _target(asked: _Asked) -> str:
    return asked.work.subscription if isinstance(asked.work, Redrive) else asked.work.topic
