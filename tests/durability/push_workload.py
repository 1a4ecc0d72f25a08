"""A load on push subscriptions of every kind, whose endpoints answer fast, slowly, late, at random, or not at all.

Publishers send batches, with ordering keys or without, one request of a key at a time; some messages are `rare`,
and only those go to endpoints that fail: push backoff leaves these a few requests a second.
"""

import asyncio
import base64
import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.durability.push_history import DeadLetter, Publish, PushHistory, Sent, Silence, Subscription
from tests.fixtures.push_sink import PushSink

Json = dict[str, Any]

FAILING = "500-12_429-4_reset-6_slow-10"
HEALED = "/delay/0.005"
NEWS_SECONDS = 1.0  # until every process knows that a subscription has changed, and what was under way has arrived
_RARE = {"kind": "rare"}
_KEYS = 5  # of a publisher
_PAUSE_SECONDS = 0.1  # after a failure
_CALL_SECONDS = 6.0  # a call to a stopped process is given up
_DRAIN_SECONDS = 75.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription: its endpoint's behaviour, and fields of the resource.  {dead} is the dead-letter topic."""

    name: str
    behaviour: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    rare: bool = False

    @property
    def fails(self) -> bool:
        return "flaky" in self.behaviour


_ORDERED = {"enableMessageOrdering": True}
_DEAD = {"deadLetterPolicy": {"deadLetterTopic": "{dead}", "maxDeliveryAttempts": 5}}
_RETRY = {"retryPolicy": {"minimumBackoff": "0.2s", "maximumBackoff": "1s"}}
_LIMIT = {"extensions": {"push": {"messagesPerSecond": 20}}}
_DIGEST = {"extensions": {"push": {"digest": {"maxMessages": 20, "maxDelay": "0.5s"}}}}

HEALTHY = (
    Plan("fast", "/status/204"),
    Plan("slow", "/delay/0.15"),
    Plan("filtered", "/delay/0.01", rare=True),
    Plan("ordered", "/delay/0.005", _ORDERED),
    Plan("ordered-slow", "/delay/0.1", _ORDERED, rare=True),
    Plan("dead", "/status/200", _DEAD, rare=True),
    Plan("retried", "/status/102", _RETRY),
    Plan("digest", "/delay/0.02", _DIGEST),
    Plan("limited", "/status/200", _LIMIT, rare=True),
)
MIXED = (
    Plan("fast", "/status/204"),
    Plan("slow", "/delay/0.15"),
    Plan("filtered", f"/flaky/{{seed}}/{FAILING}", rare=True),
    Plan("ordered", "/delay/0.005", _ORDERED),
    Plan("ordered-failing", f"/flaky/{{seed}}/{FAILING}", _ORDERED, rare=True),
    Plan("ordered-late", "/flaky/{seed}/late-6_slow-20", _ORDERED, rare=True),
    Plan("ordered-dead", f"/flaky/{{seed}}/{FAILING}", {**_ORDERED, **_DEAD}, rare=True),
    Plan("dead", f"/flaky/{{seed}}/{FAILING}", {**_DEAD, **_RETRY}, rare=True),
    Plan("retried", f"/flaky/{{seed}}/{FAILING}", _RETRY, rare=True),
    Plan("late", "/flaky/{seed}/late-6", rare=True),
    Plan("digest", "/flaky/{seed}/500-3_reset-3", _DIGEST),
    Plan("limited", "/status/200", _LIMIT, rare=True),
)


@dataclass
class Pushed:
    """A subscription, and where it was pushed to: `paths`, the last one now, unless it is pulled."""

    plan: Plan
    subscription: Subscription
    paths: list[str]


class PushWorkload:
    """Publishers of two topics, and their subscriptions.  `url` is that of a broker; faults may change it."""

    def __init__(self, url: str, sink: PushSink, plans: Sequence[Plan], *, seed: int, rare: float = 0.12) -> None:
        """`rare`: the share of publishes that are."""
        self.url = url
        self.failures: Counter[str] = Counter()
        self.published = 0
        self._progress = asyncio.Condition()
        self._sink, self._plans, self._rare = sink, plans, rare
        self._random = random.Random(seed)
        self._seed = seed
        self._run = uuid.uuid4().hex[:10]
        self._project = f"projects/push-{self._run}"
        self._publishing = True
        self.topics: dict[str, PushHistory] = {name: PushHistory([]) for name in ("one", "two")}
        self.pushed: list[Pushed] = []
        self._session: aiohttp.ClientSession

    @property
    def failing(self) -> list[Pushed]:
        return [pushed for pushed in self.pushed if pushed.plan.fails]

    # --- resources ---------------------------------------------------------------------------------------

    async def create(self) -> None:
        for topic, history in self.topics.items():
            await self.do("PUT", f"topics/{topic}", {})
            await self.do("PUT", f"topics/{topic}-dead", {})
            dead = {"topic": f"{self._project}/topics/{topic}-dead"}
            await self.do("PUT", f"subscriptions/{topic}-dead-letters", dead)
            for plan in self._plans:
                pushed = self._pushed(topic, plan)
                body = {
                    "topic": f"{self._project}/topics/{topic}",
                    "ackDeadlineSeconds": 10,
                    "pushConfig": {"pushEndpoint": self._sink.url + pushed.paths[-1]},
                    **({"filter": 'attributes.kind = "rare"'} if plan.rare else {}),
                    **plan.fields,
                }
                if policy := plan.fields.get("deadLetterPolicy"):
                    body["deadLetterPolicy"] = {**policy, "deadLetterTopic": f"{self._project}/topics/{topic}-dead"}
                await self.do("PUT", f"subscriptions/{pushed.subscription.name}", body)
                history.subscriptions.append(pushed.subscription)
                self.pushed.append(pushed)

    def _pushed(self, topic: str, plan: Plan) -> Pushed:
        fields = plan.fields
        subscription = Subscription(
            f"{topic}-{plan.name}",
            ordered="enableMessageOrdering" in fields,
            wanted=_RARE if plan.rare else {},
            max_attempts=fields.get("deadLetterPolicy", {}).get("maxDeliveryAttempts"),
            rate=fields.get("extensions", {}).get("push", {}).get("messagesPerSecond"),
        )
        behaviour = plan.behaviour.format(seed=self._seed)
        return Pushed(plan, subscription, [f"{behaviour}/{self._run}/{subscription.name}/0"])

    async def push_to(self, pushed: Pushed, behaviour: str | None) -> None:
        """Push somewhere else from now on; None: nowhere, it is a pull subscription."""
        old, config = pushed.paths[-1], {}
        if behaviour is not None:
            name = f"{self._run}/{pushed.subscription.name}/{len(pushed.paths)}"
            pushed.paths.append(f"{behaviour.format(seed=self._seed)}/{name}")
            config = {"pushEndpoint": self._sink.url + pushed.paths[-1]}
        name = pushed.subscription.name
        await self.do("POST", f"subscriptions/{name}:modifyPushConfig", {"pushConfig": config})
        silence = Silence(old, time.monotonic() + NEWS_SECONDS, float("inf"))
        pushed.subscription.silences.append(silence)

    async def pause(self, pushed: Pushed, seconds: float) -> None:
        name = pushed.subscription.name
        await self.do("POST", f"subscriptions/{name}:pausePush", {})
        began = time.monotonic() + NEWS_SECONDS
        await asyncio.sleep(NEWS_SECONDS + seconds)
        pushed.subscription.silences.append(Silence(pushed.paths[-1], began, time.monotonic()))
        await self.do("POST", f"subscriptions/{name}:resumePush", {})

    # --- load --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            yield

    @asynccontextmanager
    async def running(self, *, publishers: int = 3) -> AsyncIterator[None]:
        """Load within the block, with publishers that end with it."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(publishers):
                tasks.create_task(self._publish(number, random.Random(self._random.random())))
            try:
                yield
            finally:
                self._publishing = False

    async def until_published(self, count: int) -> None:
        """So many more messages."""
        count += self.published
        async with asyncio.timeout(40):
            async with self._progress:
                await self._progress.wait_for(lambda: self.published >= count)

    async def _publish(self, number: int, dice: random.Random) -> None:
        counter = itertools.count()
        while self._publishing:
            topic = dice.choice(list(self.topics))
            key = dice.choice(("", f"key-{number}-{dice.randrange(_KEYS)}"))
            attributes = {"kind": "common"}
            if dice.random() < self._rare:
                attributes = dict(_RARE) if dice.random() < 0.7 else {**_RARE, "poison": "yes"}
            texts = [f"{number}-{next(counter)}" for _ in range(dice.choice((1, 1, 2, 3, 8)))]
            publish = Publish(key, texts, attributes)
            self.topics[topic].publishes.append(publish)
            messages = [
                {"data": base64.b64encode(text.encode()).decode(), "attributes": attributes}
                | ({"orderingKey": key} if key else {})
                for text in texts
            ]
            status, answer = await self.call("POST", f"topics/{topic}:publish", {"messages": messages})
            if status == 200:  # else never sent again: it may have been stored
                publish.ids = [int(message_id) for message_id in answer["messageIds"]]
                async with self._progress:
                    self.published += len(texts)
                    self._progress.notify_all()
            await asyncio.sleep(dice.uniform(0.02, 0.18))

    # --- the end -----------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """All endpoints answer from now on."""
        for pushed in self.failing:
            await self._sink.program(pushed.paths[-1], HEALED)
            await self.push_to(pushed, HEALED)  # else push backoff goes on for minutes

    async def drain(self) -> None:
        """Wait until nothing is left, and collect what the endpoints saw."""
        for pushed in self.pushed:
            subscription = pushed.subscription
            until = time.monotonic() + _DRAIN_SECONDS
            while True:
                await self._read_backlog(subscription)
                if not (subscription.undelivered or subscription.outstanding) or time.monotonic() > until:
                    break
                await asyncio.sleep(0.2)
        await asyncio.sleep(1)  # what is superfluous may still come
        for pushed in self.pushed:
            for path in pushed.paths:
                pushed.subscription.sent += await self._requests(path)
        await self._read_dead_letters()

    async def _read_backlog(self, subscription: Subscription) -> None:
        position = await self.do("GET", f"subscriptions/{subscription.name}/snapshot")
        subscription.undelivered = int(position["undeliveredMessages"])
        subscription.outstanding = sum(int(shard["outstandingMessages"]) for shard in position["shards"])

    async def _requests(self, path: str) -> list[Sent]:
        sent: list[Sent] = []
        for request in await self._sink.requests(path):
            body = request.json
            for item in body.get("messages", [body]):
                message = item["message"]
                assert message["messageId"] == message["message_id"]
                sent.append(
                    Sent(
                        text=base64.b64decode(message["data"]).decode(),
                        message_id=int(message["messageId"]),
                        time=request.time,
                        ended=request.ended,
                        status=102 if path.startswith("/status/102") else request.status,  # nothing comes after it
                        key=message.get("orderingKey", ""),
                        delivery_attempt=item.get("deliveryAttempt"),
                        path=path,
                    )
                )
        return sent

    async def _read_dead_letters(self) -> None:
        for topic, history in self.topics.items():
            by_name = {subscription.name: subscription for subscription in history.subscriptions}
            path = f"subscriptions/{topic}-dead-letters"
            while received := (await self.do("POST", f"{path}:pull", _AT_ONCE)).get("receivedMessages"):
                await self.do("POST", f"{path}:acknowledge", {"ackIds": [item["ackId"] for item in received]})
                for item in received:
                    attributes = item["message"]["attributes"]
                    source = by_name[attributes["CloudPubSubDeadLetterSourceSubscription"]]
                    text = base64.b64decode(item["message"]["data"]).decode()
                    count = int(attributes["CloudPubSubDeadLetterSourceDeliveryCount"])
                    source.dead_letters.append(DeadLetter(text, count))

    # --- calls -------------------------------------------------------------------------------------------

    async def do(self, method: str, path: str, body: Json | None = None) -> Json:
        """The answer; tries again after what a fault may cause, so do only what may be done twice."""
        for _ in range(100):
            status, answer = await self.call(method, path, body)
            if status in (200, 409):
                return answer
            assert status == 503, answer
        raise AssertionError(f"{path}: unavailable for long")

    async def call(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """Status and answer; 503 after a failure that a fault may cause."""
        url = f"{self.url}/v1/{self._project}/{path}"
        try:
            async with self._session.request(method, url, json=body) as response:
                answer: Json = await response.json()
                if response.status != 503:
                    return response.status, answer
                self.failures["UNAVAILABLE"] += 1
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            self.failures[type(error).__name__] += 1
        await asyncio.sleep(_PAUSE_SECONDS)
        return 503, {}


_AT_ONCE = {"maxMessages": 1000, "returnImmediately": True}
