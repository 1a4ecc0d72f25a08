"""One whose endpoint is never there, so that all is given up: recovers it, or sends its dead letters to another
topic.

What came back it pulls, and acks some of it; the rest is given up again.
"""

import base64
import random
from collections.abc import Sequence

from tests.faults.clients.alone import SURE_SECONDS, Alone
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History
from tests.faults.operation import Came
from tests.faults.operations_of_one import Recovery

_TOPIC, _SUBSCRIPTION = "load-given-up", "given-up"
_DEAD_LETTERS, _PILE = "load-given-up-letters", "given-up-pile"
_TARGET, _SENT = "load-sent", "sent"
_EVER = "2020-01-01T00:00:00Z"
_SENT_SHARE, _ACKED = 0.25, 0.6
_RATES = (10, 100, 1000)  # messages a second
_END_SECONDS = 120.0
_MOVES_SECONDS = 2.0  # an endpoint that fails is tried ever more seldom


class Recoverer(Alone):
    rate = 5.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._path = f"subscriptions/{_SUBSCRIPTION}"
        self._moves = 0

    async def _act(self) -> None:
        for _ in range(self._dice.randint(1, 6)):
            await self._write()
        if await self._until_given_up():
            await (self._send() if self._dice.random() < _SENT_SHARE else self._recover())

    async def _end(self) -> None:
        """Have all come back, and take it."""
        began = now()
        while await self._until_given_up(to_the_end=True):
            await self._recover(all_of_it=True)
            assert now() < began + _END_SECONDS
        came: list[Came] = []
        while (received := await self._pull(_SENT, 1000)) or received is None or await self._is_left(_SENT):
            came += _came(received or [])
            await self._acknowledge(_SENT, received or [])
            assert now() < began + _END_SECONDS
        self._history.add(Recovery(who="recoverer", began=began, ended=now(), what="left", came=came))
        await self._delete([_SUBSCRIPTION, _PILE, _SENT], [_TOPIC, _DEAD_LETTERS, _TARGET])

    async def _prepare(self) -> None:
        project = self._caller.project
        deduplication: Json = {"extensions": {"deduplication": {"window": "86400s"}}}
        for topic, settings in ((_TOPIC, deduplication), (_DEAD_LETTERS, {}), (_TARGET, {})):
            await self._caller.do("PUT", f"topics/{topic}", settings, fine=[409])
        policy = {"deadLetterTopic": f"{project}/topics/{_DEAD_LETTERS}", "maxDeliveryAttempts": 1}
        pushed = {"pushConfig": {"pushEndpoint": self._nowhere()}, "deadLetterPolicy": policy}
        for name, topic, fields in (
            (_PILE, _DEAD_LETTERS, {}),
            (_SENT, _TARGET, {}),
            (_SUBSCRIPTION, _TOPIC, pushed),
        ):
            body = {"topic": f"{project}/topics/{topic}", "ackDeadlineSeconds": ACK_DEADLINE_SECONDS, **fields}
            await self._caller.do("PUT", f"subscriptions/{name}", body, fine=[409])

    def _nowhere(self) -> str:
        """Another each time: nobody has had trouble with it, so that it is tried at once."""
        self._moves += 1
        return f"http://127.1.{self._moves // 250 % 250}.{self._moves % 250 + 1}:9/nobody"

    async def _done(self, what: str, began: float, **fields: object) -> None:
        self._history.add(Recovery(who="recoverer", began=began, ended=now(), what=what, **fields))  # type: ignore[arg-type]

    async def _write(self) -> None:
        """Repeats are known, so each is stored once."""
        names = [f"given-up-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        messages = [
            {"data": base64.b64encode(name.encode()).decode(), "attributes": {"broker-dedup-id": name}}
            for name in names
        ]
        began = now()
        answer, _ = await self._until_answered(f"topics/{_TOPIC}:publish", {"messages": messages})
        ids = map(int, answer.body.get("messageIds", ()))
        await self._done("wrote", began, came=[Came(*each) for each in zip(ids, names, strict=False)])

    async def _until_given_up(self, *, to_the_end: bool = False) -> bool:
        """All that is to come has been; then it is looked what there is.  Whether there is any."""
        began = moved = now()
        while await self._is_left(_SUBSCRIPTION):
            if self.stopping.is_set() and not to_the_end:
                return False
            assert now() < began + _END_SECONDS
            if now() > moved + _MOVES_SECONDS:
                await self._move()
                moved = now()
        dead_letters: list[Json] = []
        page: Json = {"nextPageToken": ""}
        while "nextPageToken" in page:
            query = f"pageSize=100&pageToken={page['nextPageToken']}"
            page = await self._caller.do("GET", f"{self._path}/deadLetters?{query}")
            dead_letters += page.get("deadLetters", [])
        came = [Came(int(each["sourceMessageId"]), _name(each["message"])) for each in dead_letters]
        await self._done("gave up", began, came=came)
        return bool(came)

    async def _send(self) -> None:
        began = now()
        body = {
            "target": f"{self._caller.project}/topics/{_TARGET}",
            "maxMessagesPerSecond": self._dice.choice(_RATES),
        }
        counts, _ = await self._long(f"{self._path}:redrive", body)
        await self._done("sent", began, counts=counts)

    async def _recover(self, *, all_of_it: bool = False) -> None:
        """While it is paused, so that nothing is tried until all of it is back; then it is pulled for a while."""
        await self._change(f"{self._path}:pause", {})
        began = now()
        body = {"startTime": _EVER, "maxMessagesPerSecond": self._dice.choice(_RATES)}
        counts, _ = await self._long(f"{self._path}:recover", body)
        await self._done("recovered", began, counts=counts)
        await self._change(f"{self._path}:modifyPushConfig", {"pushConfig": {}})
        await self._change(f"{self._path}:resume", {})
        for _ in range(self._dice.randint(1, 4)):
            await self._take(1.0 if all_of_it else _ACKED)
        await self._move()

    async def _move(self) -> None:
        endpoint = {"pushConfig": {"pushEndpoint": self._nowhere()}}
        await self._change(f"{self._path}:modifyPushConfig", endpoint)

    async def _take(self, acked: float) -> None:
        """And ack a share of it; the ack deadline of the rest passes soon."""
        began = now()
        received = await self._pull(_SUBSCRIPTION, self._dice.choice((5, 1000)))
        if not received:
            return
        await self._done("took", began, came=_came(received))
        chosen = [each for each in received if self._dice.random() < acked]
        await self._acknowledge(_SUBSCRIPTION, chosen)
        await self._done("acked" if now() < began + SURE_SECONDS else "maybe acked", began, came=_came(chosen))
        if rest := [each["ackId"] for each in received if each not in chosen]:
            body = {"ackIds": rest, "ackDeadlineSeconds": 1}
            await self._caller.call("POST", f"{self._path}:modifyAckDeadline", body)

    async def _acknowledge(self, subscription: str, received: Sequence[Json]) -> None:
        if received:
            ids = {"ackIds": [each["ackId"] for each in received]}
            await self._until_answered(f"subscriptions/{subscription}:acknowledge", ids)


def _came(received: Sequence[Json]) -> list[Came]:
    return [Came(int(each["message"]["messageId"]), _name(each["message"])) for each in received]


def _name(message: Json) -> str:
    return base64.b64decode(message["data"]).decode()
