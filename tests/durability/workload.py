"""A load of publishers and pullers that may meet any fault, and a checker of what they saw.

Every publisher and puller notes what it sent and what was answered, with the time.  The checks then hold whatever
was killed meanwhile:

- what was answered is durable: every message whose publish was answered is delivered;
- an ack is for good: no pull that was sent after an ack had been answered brings the message again;
- a publish is whole: of a publish without an answer either all messages exist or none;
- a publish that was refused because too much waited (RESOURCE_EXHAUSTED) is not stored;
- order: message ids ascend in the order of each publisher's publishes, and so do first deliveries to a puller;
- nothing is invented: data, attributes and id of every delivery are those that were published.
"""

import asyncio
import base64
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

Json = dict[str, Any]

PROJECT = "projects/durability"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/load", f"{PROJECT}/subscriptions/load"
ACK_DEADLINE_SECONDS = 10  # the shortest there is
_PAUSE_SECONDS = 0.05  # after a failure: the broker may be away
_HANGS_SECONDS = 60.0  # without an answer: a TimeoutError, which no fault excuses
_IN_FLIGHT_SECONDS = 2.0  # what a fault takes from a caller was claimed at most so long before


@dataclass(slots=True)
class Publish:
    """One publish request.  `ids` is None as long as there is no answer; `refused`: with RESOURCE_EXHAUSTED."""

    texts: list[str]
    ids: list[str] | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """One message of one pull response."""

    message_id: str
    text: str
    pull_sent_at: float
    received_at: float


@dataclass
class History:
    """What everybody saw.  Times are of the monotonic clock."""

    publishes: list[list[Publish]] = field(default_factory=list)  # by publisher, in order
    received: list[list[Received]] = field(default_factory=list)  # by puller, in order
    acked_at: dict[str, float] = field(default_factory=dict)  # by message id: when its ack was answered
    ack_in_doubt: set[str] = field(default_factory=set)  # acks that were sent and got no answer
    answered_count: int = 0  # messages whose publish was answered
    failures: Counter[str] = field(default_factory=Counter)
    fault_at: float = float("inf")  # when something was killed

    @property
    def answered(self) -> dict[str, str]:
        """Text by id of the messages whose publish was answered."""
        pairs: dict[str, str] = {}
        for publish in itertools.chain(*self.publishes):
            pairs |= zip(publish.ids or (), publish.texts, strict=False)
        return pairs

    @property
    def delivered(self) -> set[str]:
        return {received.message_id for received in itertools.chain(*self.received)}

    @property
    def unsettled(self) -> set[str]:
        """Messages that are known to exist and have to be delivered (again): no ack was sent, or none answered."""
        return set(self.answered) - self.delivered | self.delivered - set(self.acked_at) - self.ack_in_doubt

    def check(self) -> None:
        """Assert what must hold at all times, and `check_complete` at the end besides."""
        self._check_contents()
        self._check_acks()
        self._check_publish_order()
        self._check_delivery_order()

    def check_complete(self) -> None:
        """Assert that nothing is lost, once everything has been drained."""
        self.check()
        lost = set(self.answered) - self.delivered
        assert not lost, f"{len(lost)} answered messages were never delivered: {sorted(lost)[:10]}"
        delivered_texts = {received.text for received in itertools.chain(*self.received)}
        for publish in itertools.chain(*self.publishes):
            there = [text in delivered_texts for text in publish.texts]
            assert all(there) or not any(there), f"half a publish: {publish}"
            assert not (publish.refused and any(there)), f"refused, and stored: {publish}"

    def _check_contents(self) -> None:
        answered = self.answered
        sent = {text for publish in itertools.chain(*self.publishes) for text in publish.texts}
        ids_of_text: dict[str, str] = {}
        for received in itertools.chain(*self.received):
            assert received.text in sent, received
            assert answered.get(received.message_id, received.text) == received.text, received
            assert ids_of_text.setdefault(received.text, received.message_id) == received.message_id, received

    def _check_acks(self) -> None:
        for received in itertools.chain(*self.received):
            acked_at = self.acked_at.get(received.message_id)
            assert acked_at is None or received.pull_sent_at < acked_at, f"acked before, and came back: {received}"

    def _check_publish_order(self) -> None:
        for publishes in self.publishes:
            ids = [int(message_id) for publish in publishes for message_id in publish.ids or ()]
            assert ids == sorted(set(ids))

    def _check_delivery_order(self) -> None:
        # What was claimed and lost with the fault looks like a first delivery when its ack deadline has passed.
        end = self.fault_at + ACK_DEADLINE_SECONDS - _IN_FLIGHT_SECONDS
        again = {id(received) for received in self.delivered_again()}
        for received in self.received:
            ids = [int(r.message_id) for r in received if r.received_at < end and id(r) not in again]
            assert ids == sorted(set(ids))

    def delivered_again(self) -> list[Received]:
        """Every delivery of a message after its first one."""
        in_time = sorted(itertools.chain(*self.received), key=lambda received: received.received_at)
        seen: set[str] = set()
        again = []
        for received in in_time:
            if received.message_id in seen:
                again.append(received)
            seen.add(received.message_id)
        return again


class Workload:
    """Publishers and pullers of one topic and subscription; each keeps to one of `urls` as long as it answers."""

    def __init__(self, urls: Sequence[str], *, seed: int, leave: float = 0.0) -> None:
        """`leave`: the share of responses that are not acked (their messages come again)."""
        self.urls = list(urls)
        self.history = History()
        self._leave = leave
        self._random = random.Random(seed)
        self._stopping = asyncio.Event()
        self._progress = asyncio.Event()

    @asynccontextmanager
    async def running(self, *, publishers: int = 3, pullers: int = 3) -> AsyncIterator[None]:
        """Load within the block; ends when every call in flight has ended, one way or the other."""
        async with self._session() as session, asyncio.TaskGroup() as tasks:
            for number in range(publishers):
                self.history.publishes.append([])
                tasks.create_task(self._publish(session, number, self.history.publishes[-1]))
            for number in range(pullers):
                self.history.received.append([])
                tasks.create_task(self._pull(session, number, self.history.received[-1]))
            try:
                yield
            finally:
                self._stopping.set()

    async def until(self, *, answered: int = 0, acked: int = 0) -> None:
        """Wait until so many messages more than now have been published and acked."""
        answered += self.history.answered_count
        acked += len(self.history.acked_at)
        async with asyncio.timeout(30):
            while self.history.answered_count < answered or len(self.history.acked_at) < acked:
                self._progress.clear()
                await self._progress.wait()

    def fault(self) -> None:
        """Something is about to be killed."""
        self.history.fault_at = time.monotonic()

    async def create(self) -> None:
        async with self._session() as session:
            subscription = {"topic": TOPIC, "ackDeadlineSeconds": ACK_DEADLINE_SECONDS}
            for name, body in ((TOPIC, {}), (SUBSCRIPTION, subscription)):
                async with session.put(f"{self.urls[0]}/v1/{name}", json=body) as response:
                    assert response.status == 200, await response.text()

    async def hold(self, url: str) -> list[Json]:
        """Pull some messages from one broker, and do not ack them."""
        received: list[Received] = []
        self.history.received.append(received)
        async with self._session() as session:
            while True:
                sent_at = time.monotonic()
                answer = await self._call(session, url, f"{SUBSCRIPTION}:pull", {"maxMessages": 10})
                if answer and (messages := answer.get("receivedMessages")):
                    received += [_received(message, sent_at, time.monotonic()) for message in messages]
                    return list(messages)

    async def acknowledge(self, url: str, messages: list[Json]) -> None:
        async with self._session() as session:
            await self._acknowledge(session, url, messages)

    async def drain(self) -> None:
        """Pull and ack until everything that is known to exist is acked, then check that nothing is left."""
        received: list[Received] = []
        self.history.received.append(received)
        self._leave = 0.0
        async with self._session() as session:
            async with asyncio.timeout(20):  # the ack deadline of what was out when somebody was killed, and more
                while self.history.unsettled:
                    await self._pull_once(session, self.urls[0], received)
            while await self._pull_once(session, self.urls[0], received, wait=False):
                pass  # publishes without an answer

    async def _publish(self, session: aiohttp.ClientSession, number: int, publishes: list[Publish]) -> None:
        dice = random.Random(self._random.random())
        counter = itertools.count()
        url = self.urls[number % len(self.urls)]
        while not self._stopping.is_set():
            texts = [f"publisher-{number}-{next(counter)}" for _ in range(dice.choice((1, 1, 5, 20, 50)))]
            publishes.append(Publish(texts))
            messages = [{"data": base64.b64encode(text.encode()).decode()} for text in texts]
            answer = await self._call(session, url, f"{TOPIC}:publish", {"messages": messages}, publishes[-1])
            if answer is None:  # never sent again: it may have been stored
                url = self._another(url)
                continue
            publishes[-1].ids = answer["messageIds"]
            assert len(answer["messageIds"]) == len(texts)
            self.history.answered_count += len(texts)
            self._progress.set()

    async def _pull(self, session: aiohttp.ClientSession, number: int, received: list[Received]) -> None:
        url = self.urls[number % len(self.urls)]
        while not self._stopping.is_set():
            if await self._pull_once(session, url, received, wait=False) is None:
                url = self._another(url)

    async def _pull_once(
        self, session: aiohttp.ClientSession, url: str, received: list[Received], *, wait: bool = False
    ) -> int | None:
        """Pull, note, and ack.  The number of messages, or None if the broker did not answer."""
        sent_at = time.monotonic()
        body = {"maxMessages": self._random.choice((10, 100, 1000)), "returnImmediately": not wait}
        answer = await self._call(session, url, f"{SUBSCRIPTION}:pull", body)
        if answer is None:
            return None
        messages = answer.get("receivedMessages", [])
        if not messages:
            await asyncio.sleep(_PAUSE_SECONDS)
            return 0
        now = time.monotonic()
        received += [_received(message, sent_at, now) for message in messages]
        if self._random.random() >= self._leave:
            await self._acknowledge(session, url, messages)
        return len(messages)

    async def _acknowledge(self, session: aiohttp.ClientSession, url: str, messages: list[Json]) -> None:
        ids = [message["message"]["messageId"] for message in messages]
        ack_ids = [message["ackId"] for message in messages]
        acked = await self._call(session, url, f"{SUBSCRIPTION}:acknowledge", {"ackIds": ack_ids})
        if acked is None:
            self.history.ack_in_doubt |= set(ids)
            return
        now = time.monotonic()
        for message_id in ids:
            self.history.acked_at.setdefault(message_id, now)
        self._progress.set()

    async def _call(
        self, session: aiohttp.ClientSession, url: str, path: str, body: Json, publish: Publish | None = None
    ) -> Json | None:
        """The answer, or None after a failure that a killed broker or database may cause."""
        try:
            async with session.post(f"{url}/v1/{path}", json=body) as response:
                answer: Json = await response.json()
                if response.status == 200:
                    return answer
                status: str = answer["error"]["status"]
                if publish is not None and response.status == 429:
                    publish.refused = True
                    assert status == "RESOURCE_EXHAUSTED", answer
                else:
                    assert (response.status, status) == (503, "UNAVAILABLE"), answer
                assert 1 <= int(response.headers["Retry-After"]) <= 2
                self.history.failures[status] += 1
        except (aiohttp.ClientError, ConnectionError) as error:
            self.history.failures[type(error).__name__] += 1
        await asyncio.sleep(_PAUSE_SECONDS)
        return None

    def _another(self, url: str) -> str:
        return next((other for other in self.urls if other != url), url)

    @staticmethod
    def _session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_HANGS_SECONDS))


def _received(message: Json, sent_at: float, now: float) -> Received:
    return Received(
        message["message"]["messageId"],
        base64.b64decode(message["message"]["data"]).decode(),
        sent_at,
        now,
    )
