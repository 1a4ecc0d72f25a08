"""A load on ordered and exactly-once subscriptions of one topic, by pullers that do everything a puller may do.

Publishers send with ordering keys, one request of a key at a time, as ordered publishers do: some keys are hot,
most are not, some messages have none.  Pullers ack, ack in part, nack, extend, let expire, or forget what they get.
"""

import asyncio
import base64
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.durability.ordered_history import Change, OrderedHistory, Publish, Response, Subscription

Json = dict[str, Any]

PROJECT = "projects/durability"
TOPIC = f"{PROJECT}/topics/ordered-load"
ACK_DEADLINE_SECONDS = 10  # the shortest there is
SHORT_SECONDS = 1  # what a puller sets that wants to see an expiry
KEYS_PER_PUBLISHER = 60
_HOT_MESSAGES = 200  # after which another key becomes the hot one: checking a key costs the square of its length
_MOST_UNSETTLED = 3000  # publishers wait for pullers then
_PAUSE_SECONDS = 0.05  # after a failure or an empty answer
_TOO_LONG_SECONDS = 15.0
_ACK = None
# What pullers do with a response: how often, and which change to which of its messages, one after the other.
_STYLES: dict[str, tuple[int, tuple[tuple[str, int | None], ...]]] = {
    "ack": (40, (("every", _ACK),)),
    "ack in pieces": (10, ()),
    "ack some, nack the others": (6, (("some", _ACK), ("others", 0))),
    "ack some, let the others expire": (4, (("some", _ACK), ("others", SHORT_SECONDS))),
    "nack the first": (6, (("first", 0), ("all but the first", _ACK))),
    "nack one of the middle": (6, (("middle", 0), ("all but the middle", _ACK))),
    "nack all": (6, (("every", 0),)),
    "extend": (6, (("every", ACK_DEADLINE_SECONDS * 2), ("pause", 0), ("every", _ACK))),
    "expire": (3, (("every", SHORT_SECONDS),)),
    "ack too late": (3, (("every", SHORT_SECONDS), ("pause", SHORT_SECONDS), ("every", _ACK))),
    "shorten one of the middle": (4, (("middle", SHORT_SECONDS), ("every", _ACK))),
    "forget": (1, ()),
}


class OrderedWorkload:
    """Publishers of one topic, pullers of its subscriptions; each call goes to any of `urls`."""

    def __init__(self, urls: Sequence[str], *, seed: int) -> None:
        self.urls = list(urls)
        both = itertools.product((False, True), repeat=2)
        self.history = OrderedHistory(
            [
                Subscription(_name(ordered, exactly_once), ordered, exactly_once, ACK_DEADLINE_SECONDS)
                for ordered, exactly_once in both
                if ordered or exactly_once
            ]
        )
        self.failures: Counter[str] = Counter()
        self.styles: Counter[str] = Counter()
        self.forgetful = True  # some responses are forgotten, and hold their messages for a whole ack deadline
        self._random = random.Random(seed)
        self._publishing = True
        self._settling = False  # pullers ack everything from now on
        self._stopping = False
        self._sent = 0  # messages
        self._acked: dict[str, set[int]] = {s.name: set() for s in self.history.subscriptions}

    async def create(self) -> None:
        async with self._session() as session:
            await self._put(session, TOPIC, {})
            for subscription in self.history.subscriptions:
                body = {
                    "topic": TOPIC,
                    "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
                    "enableMessageOrdering": subscription.ordered,
                    "enableExactlyOnceDelivery": subscription.exactly_once,
                }
                await self._put(session, subscription.name, body)

    @asynccontextmanager
    async def running(self, *, publishers: int = 5, pullers: int = 8) -> AsyncIterator[None]:
        """Load within the block, by so many pullers a subscription; ends when all that was published is settled."""
        async with self._session() as session, asyncio.TaskGroup() as tasks:
            sending = [
                tasks.create_task(self._publish(session, number, random.Random(self._random.random())))
                for number in range(publishers)
            ]
            for subscription in self.history.subscriptions:
                for number in range(pullers):
                    dice = random.Random(self._random.random())
                    tasks.create_task(self._pull(session, subscription, dice, wait=number < 2))
            try:
                yield
                self._publishing = False
                await asyncio.wait(sending)
                self._settling = True
                async with asyncio.timeout(30):  # the ack deadline of what was forgotten, and more
                    await self._until_settled(session)
            finally:
                self._publishing, self._stopping = False, True

    async def _until_settled(self, session: aiohttp.ClientSession) -> None:
        for subscription in self.history.subscriptions:
            while True:
                async with session.get(f"{self._url()}/v1/{subscription.name}/snapshot") as response:
                    position = await response.json()
                if response.status == 200 and not int(position["undeliveredMessages"]):
                    break
                await asyncio.sleep(_PAUSE_SECONDS)

    # --- publishers --------------------------------------------------------------------------------------

    async def _publish(self, session: aiohttp.ClientSession, number: int, dice: random.Random) -> None:
        counter, hot = itertools.count(), itertools.count()
        hot_key, hot_count = f"hot-{number}-{next(hot)}", 0
        while self._publishing:
            if self._sent - min(len(acked) for acked in self._acked.values()) > _MOST_UNSETTLED:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            count = dice.choice((1, 1, 1, 2, 5, 20))
            key = dice.choices((hot_key, f"key-{number}-{dice.randrange(KEYS_PER_PUBLISHER)}", ""), (40, 45, 15))[0]
            publish = Publish(key, [f"{number}-{next(counter)}" for _ in range(count)])
            self.history.publishes[key].append(publish)
            messages = [
                {"data": base64.b64encode(text.encode()).decode()} | ({"orderingKey": key} if key else {})
                for text in publish.texts
            ]
            status, answer = await self._call(session, f"{TOPIC}:publish", {"messages": messages})
            if status == 200:  # else never sent again: it may have been stored
                publish.ids = [int(message_id) for message_id in answer["messageIds"]]
                assert len(publish.ids) == count
                self._sent += count
            hot_count += count * (key == hot_key)
            if hot_count > _HOT_MESSAGES:
                hot_key, hot_count = f"hot-{number}-{next(hot)}", 0

    # --- pullers -----------------------------------------------------------------------------------------

    async def _pull(
        self, session: aiohttp.ClientSession, subscription: Subscription, dice: random.Random, *, wait: bool
    ) -> None:
        while not self._stopping:
            sent_at = time.monotonic()
            body = {"maxMessages": dice.choice((1, 1, 3, 10, 30, 100)), "returnImmediately": not wait}
            status, answer = await self._call(session, f"{subscription.name}:pull", body)
            received = answer.get("receivedMessages", []) if status == 200 else []
            if not received:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            response = Response(sent_at, time.monotonic(), [])
            ack_ids: dict[int, str] = {}
            for item in received:
                message_id = int(item["message"]["messageId"])
                response.messages.append((message_id, item["message"].get("orderingKey", "")))
                text = base64.b64decode(item["message"]["data"]).decode()
                assert subscription.texts.setdefault(message_id, text) == text
                ack_ids[message_id] = item["ackId"]
            subscription.responses.append(response)
            await _Lease(self, session, subscription, response, ack_ids, dice).handle(self._style(dice))

    def _style(self, dice: random.Random) -> str:
        style = dice.choices(list(_STYLES), [weight for weight, _ in _STYLES.values()])[0]
        if self._settling or (style == "forget" and not self.forgetful):
            style = "ack"
        self.styles[style] += 1
        return style

    def acked(self, subscription: Subscription, message_ids: frozenset[int]) -> None:
        self._acked[subscription.name] |= message_ids

    # --- calls -------------------------------------------------------------------------------------------

    async def change(
        self,
        session: aiohttp.ClientSession,
        subscription: Subscription,
        ack_ids: dict[int, str],
        seconds: int | None,
    ) -> Change:
        """Ack messages, or give them a new deadline."""
        named, started_at = frozenset(ack_ids), time.monotonic()
        body: Json = {"ackIds": list(ack_ids.values())}
        if seconds is None:
            status, answer = await self._call(session, f"{subscription.name}:acknowledge", body)
        else:
            body["ackDeadlineSeconds"] = seconds
            status, answer = await self._call(session, f"{subscription.name}:modifyAckDeadline", body)
        ended_at = time.monotonic()
        refused: frozenset[int] = frozenset()
        if status == 400:
            assert subscription.exactly_once, answer
            [detail] = answer["error"]["details"]
            assert detail["reason"] == "EXACTLY_ONCE_ACKID_FAILURE", answer
            assert set(detail["metadata"]) <= set(body["ackIds"]), answer
            refused = frozenset(m for m, ack_id in ack_ids.items() if ack_id in detail["metadata"])
            self.failures.update(detail["metadata"].values())
        done = named - refused if status in (200, 400) else frozenset()
        return Change(started_at, ended_at, named, seconds, done, refused)

    async def _call(self, session: aiohttp.ClientSession, path: str, body: Json) -> tuple[int, Json]:
        """Status and answer; 503 after a failure that a killed broker may cause."""
        sent_at = time.monotonic()
        try:
            async with session.post(f"{self._url()}/v1/{path}", json=body) as response:
                answer: Json = await response.json()
                assert response.status in (200, 400, 503), answer
                if response.status != 503:
                    return response.status, answer
                self.failures["UNAVAILABLE"] += 1
        except (aiohttp.ClientError, ConnectionError) as error:
            self.failures[type(error).__name__] += 1
        assert time.monotonic() - sent_at < _TOO_LONG_SECONDS, f"{path} hung"
        await asyncio.sleep(_PAUSE_SECONDS)
        return 503, {}

    async def _put(self, session: aiohttp.ClientSession, name: str, body: Json) -> None:
        async with session.put(f"{self._url()}/v1/{name}", json=body) as response:
            assert response.status == 200, await response.text()

    def _url(self) -> str:
        return self._random.choice(self.urls)

    @staticmethod
    def _session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), connector=connector)


def _name(ordered: bool, exactly_once: bool) -> str:
    words = ["ordered"] * ordered + ["exactly-once"] * exactly_once
    return f"{PROJECT}/subscriptions/{'-'.join(words)}"


class _Lease:
    """What one puller does with one response."""

    def __init__(
        self,
        workload: OrderedWorkload,
        session: aiohttp.ClientSession,
        subscription: Subscription,
        response: Response,
        ack_ids: dict[int, str],
        dice: random.Random,
    ) -> None:
        self._workload, self._session, self._subscription = workload, session, subscription
        self._response, self._ack_ids, self._dice = response, ack_ids, dice

    async def handle(self, style: str) -> None:
        chosen = self._choose()
        if style == "ack in pieces":
            await self._ack_in_pieces(chosen["every"])
        for which, seconds in _STYLES[style][1]:
            if which == "pause":
                await asyncio.sleep((seconds or 0) + self._dice.uniform(-0.1, 0.2))
            else:
                await self._change(chosen[which], seconds)

    def _choose(self) -> dict[str, list[int]]:
        every = list(self._ack_ids)
        some = self._dice.sample(every, self._dice.randint(1, len(every)))
        middle = self._dice.choice(every)
        return {
            "every": every,
            "some": some,
            "others": [message_id for message_id in every if message_id not in set(some)],
            "first": every[:1],
            "all but the first": every[1:],
            "middle": [middle],
            "all but the middle": [message_id for message_id in every if message_id != middle],
        }

    async def _ack_in_pieces(self, message_ids: list[int]) -> None:
        """In any order, two calls at a time."""
        shuffled = self._dice.sample(message_ids, len(message_ids))
        half = len(shuffled) // 2
        await asyncio.gather(self._change(shuffled[:half], _ACK), self._change(shuffled[half:], _ACK))
        await self._change(message_ids, _ACK)  # with exactly-once delivery what came before its turn was refused

    async def _change(self, message_ids: list[int], seconds: int | None) -> None:
        if not message_ids:
            return
        ack_ids = {message_id: self._ack_ids[message_id] for message_id in message_ids}
        change = await self._workload.change(self._session, self._subscription, ack_ids, seconds)
        self._response.changes.append(change)
        if seconds is None:
            self._workload.acked(self._subscription, change.done)
