"""A publisher: one request after the other, with ordering keys of its own or without."""

import asyncio
import base64
import itertools
import random

from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.shapes import Shapes
from tests.faults.clients.topology import RARE, SHAPED, TOPIC
from tests.faults.history import History, Publish

_KEYS = 4
_MESSAGES_OF_A_KEY = 60  # then another takes its place: checking a key costs the square of its length
_RARE, _POISON = 0.15, 0.75  # the share of publishes that are rare, and of those that nobody can handle


class Publisher:
    """A publish without an answer is never sent again: it may have been stored."""

    def __init__(
        self,
        name: str,
        caller: RestCaller,
        history: History,
        dice: random.Random,
        *,
        rate: float,
        shapes: Shapes | None = None,
    ) -> None:
        """`rate`: requests a second; `shapes`: it publishes such messages, to their topic."""
        self._name, self._caller, self._history, self._dice, self._rate = name, caller, history, dice, rate
        self._shapes = shapes
        self._texts, self._key_names = itertools.count(), itertools.count()
        self._keys: dict[str, int] = {}  # how many messages of each are left to send
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self._publish()
            await asyncio.sleep(self._dice.expovariate(self._rate))

    async def _publish(self) -> None:
        texts = [f"{self._name}-{next(self._texts)}" for _ in range(self._dice.choice((1, 1, 1, 2, 3, 8)))]
        key = self._key(len(texts))
        attributes = {"kind": "common"}
        if self._dice.random() < _RARE:
            attributes = RARE | ({"poison": "yes"} if self._dice.random() < _POISON else {})
        message: Json = {"attributes": attributes} | ({"orderingKey": key} if key else {})
        topic, breaks = TOPIC, False
        if self._shapes is not None:
            topic = SHAPED
            texts, reported, breaks = self._shapes.shaped(texts, self._dice)
            attributes = attributes | reported
        messages = [{"data": base64.b64encode(text.encode()).decode()} | message for text in texts]
        began = now()
        answer = await self._caller.call("POST", f"topics/{topic}:publish", {"messages": messages})
        self._history.add(
            Publish(
                who=self._name,
                began=began,
                ended=now(),
                outcome=answer.outcome,
                topic=topic,
                texts=texts,
                key=key,
                attributes=attributes,
                ids=[int(message_id) for message_id in answer.body.get("messageIds", ())],
                breaks_schema=breaks,
            )
        )
        too_much = answer.status == 429  # RESOURCE_EXHAUSTED: too much waits
        foreseen = too_much or breaks or self._caller.is_denied(answer)
        if answer.outcome == "failed" and not foreseen:
            self._caller.unforeseen.append(f"publish: {answer.body}")

    def _key(self, count: int) -> str:
        """ "" for about half of the publishes."""
        while len(self._keys) < _KEYS:
            self._keys[f"{self._name}-key-{next(self._key_names)}"] = _MESSAGES_OF_A_KEY
        key = self._dice.choice(["", *self._keys])
        if not key or self._dice.random() < 0.4:
            return ""
        self._keys[key] -= count
        if self._keys[key] <= 0:
            del self._keys[key]
        return key
