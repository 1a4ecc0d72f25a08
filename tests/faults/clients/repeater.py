"""A publisher that sends each request until it is answered, and now and then again: its topic knows repeats.

Some of its messages are to come later, and some of these it cancels.  At the end it collects all that came.
"""

import asyncio
import base64
import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import EVENTS, Plan
from tests.faults.history import Cancel, Collected, History, Named
from tests.faults.operation import Came, Outcome

_TOPIC, _SUBSCRIPTION = "load-once", "once"
_EXTENSIONS = {"delay": True, "deduplication": {"window": "86400s"}}
_RATE = 4.0  # requests a second
_AGAIN, _LATER, _CANCELLED = 0.3, 0.3, 0.3  # shares: of requests; of these; of those
_MOST_SECONDS = 3.0  # ahead
_COLLECT_SECONDS = 60.0


class Repeater:
    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        self._caller, self._history, self._dice = caller, history, dice
        self._on = any(plan.terms.topic == EVENTS for plan in plans)
        self._count = itertools.count()
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        if not self._on:
            return
        path = f"topics/{_TOPIC}"
        await self._caller.do("PUT", path, {"extensions": _EXTENSIONS}, fine=[409])
        body = {"topic": f"{self._caller.project}/{path}", "ackDeadlineSeconds": 60}
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])
        sent: list[list[Json]] = []
        while not self.stopping.is_set():
            again = sent and self._dice.random() < _AGAIN
            messages = self._dice.choice(sent) if again else self._new()
            ids = await self._until_answered(messages)
            if not again:
                sent.append(messages)
                later = "broker-deliver-at" in messages[0]["attributes"]
                if later and self._dice.random() < _CANCELLED:
                    await self._cancel(self._dice.choice(ids))
            await asyncio.sleep(self._dice.expovariate(_RATE))

    async def mend(self) -> None:
        """Once: what comes later has come by the time that no more is found."""
        if not self._on:
            return
        self._on = False
        began, found = now(), list[Came]()
        while waiting := await self._is_waiting() or now() < began + 1.0:
            found += await self._pull()
            assert now() < began + _COLLECT_SECONDS, waiting
        while more := await self._pull():
            found += more
        self._history.add(Collected(who="repeater", began=began, ended=now(), came=found))
        await self._caller.do("DELETE", f"subscriptions/{_SUBSCRIPTION}", fine=[404])
        await self._caller.do("DELETE", f"topics/{_TOPIC}", fine=[404])

    def _new(self) -> list[Json]:
        names = [f"once-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        attributes = {}
        if self._dice.random() < _LATER:
            at = datetime.now(UTC) + timedelta(seconds=self._dice.uniform(0.1, _MOST_SECONDS))
            attributes = {"broker-deliver-at": at.isoformat(timespec="milliseconds")}
        return [
            {
                "data": base64.b64encode(name.encode()).decode(),
                "attributes": attributes | {"broker-dedup-id": name},
            }
            for name in names
        ]

    async def _until_answered(self, messages: list[Json]) -> list[int]:
        """Each try is noted."""
        while True:
            began = now()
            answer = await self._caller.call("POST", f"topics/{_TOPIC}:publish", {"messages": messages})
            ids = [int(id_) for id_ in answer.body.get("messageIds", ())]
            names = [message["attributes"]["broker-dedup-id"] for message in messages]
            self._history.add(
                Named(who="repeater", began=began, ended=now(), outcome=answer.outcome, names=names, ids=ids)
            )
            if answer.outcome == "ok":
                return ids
            if answer.outcome == "failed" and answer.status != 429 and not self._caller.is_denied(answer):
                self._caller.unforeseen.append(f"publish again: {answer.body}")

    async def _cancel(self, id_: int) -> None:
        began = now()
        answer = await self._caller.call("DELETE", f"topics/{_TOPIC}/scheduled/{id_}")
        # The library sends a DELETE again whose connection ends without an answer: the first one may have done it.
        outcome: Outcome = "unknown" if answer.status == HTTPStatus.NOT_FOUND else answer.outcome
        self._history.add(Cancel(who="repeater", began=began, ended=now(), outcome=outcome, id=id_))

    async def _is_waiting(self) -> bool:
        return bool((await self._caller.do("GET", f"topics/{_TOPIC}/scheduled")).get("scheduledMessages"))

    async def _pull(self) -> list[Came]:
        """And acknowledge: what comes again has the same id."""
        path = f"subscriptions/{_SUBSCRIPTION}"
        answer = await self._caller.do("POST", f"{path}:pull", {"maxMessages": 1000, "returnImmediately": True})
        received = answer.get("receivedMessages", [])
        if received:
            await self._caller.do("POST", f"{path}:acknowledge", {"ackIds": [each["ackId"] for each in received]})
        return [came(each["message"]) for each in received]


def came(message: Json) -> Came:
    """From a received message, whose data is its name."""
    early = 0.0
    if at := message.get("attributes", {}).get("broker-deliver-at"):
        published = datetime.fromisoformat(message["publishTime"].replace("Z", "+00:00"))
        early = max((datetime.fromisoformat(at) - published).total_seconds(), 0.0)
    return Came(int(message["messageId"]), base64.b64decode(message["data"]).decode(), early)
