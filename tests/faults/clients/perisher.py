"""A publisher of messages that are worth nothing after a while, who also consumes them, not always in time.

What is past its time goes to a dead-letter topic: at the end each message was received, or is a dead letter.
"""

import asyncio
import base64
from collections.abc import Sequence

from tests.faults.clients.actor import Actor
from tests.faults.clients.lease import now
from tests.faults.clients.repeater import came
from tests.faults.clients.rest import Answer, Json
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS
from tests.faults.history import Bought, Perishable
from tests.faults.operation import Came

_TOPIC, _SUBSCRIPTION = "load-perishable", "perishable"
_DEAD_LETTERS, _DEAD_LETTER_SUBSCRIPTION = "load-perished", "perished"
_FOR_EVER, _KEYED, _ACKED, _NACKED = 0.3, 0.3, 0.4, 0.3  # shares: of publishes; of what it receives
_MOST_SECONDS = 3.0  # to live
_TAKEN = 5  # messages of a pull
_END_SECONDS = 60.0


class Perisher(Actor):
    rate = 4.0

    async def _prepare(self) -> None:
        project = self._caller.project
        await self._caller.do("PUT", f"topics/{_TOPIC}", {"extensions": {"expiry": True}}, fine=[409])
        await self._caller.do("PUT", f"topics/{_DEAD_LETTERS}", {}, fine=[409])
        of_dead_letters = {"topic": f"{project}/topics/{_DEAD_LETTERS}"}
        await self._caller.do("PUT", f"subscriptions/{_DEAD_LETTER_SUBSCRIPTION}", of_dead_letters, fine=[409])
        body: Json = {
            "topic": f"{project}/topics/{_TOPIC}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
            "enableMessageOrdering": self._dice.random() < 0.5,
            "deadLetterPolicy": {
                "deadLetterTopic": f"{project}/topics/{_DEAD_LETTERS}",
                "maxDeliveryAttempts": 100,
            },
            "extensions": {"deadLetterExpired": True},
        }
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])

    async def _act(self) -> None:
        await self._dice.choice((self._publish, self._take))()

    async def _end(self) -> None:
        """Take what is left, until nothing is, and then the dead letters."""
        began = now()
        while await self._take(final=True) or await self._is_left():
            assert now() < began + _END_SECONDS
        began, dead_letters = now(), list[Came]()
        while received := await self._pull(_DEAD_LETTER_SUBSCRIPTION, 1000):
            dead_letters += [came(each["message"]) for each in received]
            await self._acknowledge(_DEAD_LETTER_SUBSCRIPTION, received)
        self._history.add(Bought(who="perisher", began=began, ended=now(), dead_letters=dead_letters, final=True))
        await self._delete([_SUBSCRIPTION, _DEAD_LETTER_SUBSCRIPTION], [_TOPIC, _DEAD_LETTERS])

    async def _is_left(self) -> bool:
        position = await self._caller.do("GET", f"subscriptions/{_SUBSCRIPTION}/snapshot")
        out = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
        if int(position["undeliveredMessages"]) or out:
            await asyncio.sleep(0.1)
            return True
        return False

    async def _publish(self) -> None:
        names = [f"perishable-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        ttl = 0.0 if self._dice.random() < _FOR_EVER else round(self._dice.uniform(0.1, _MOST_SECONDS), 3)
        key = self._dice.choice("ab") if self._dice.random() < _KEYED else ""
        attributes = {"broker-ttl": f"{ttl}s"} if ttl else {}
        messages = [
            {
                "data": base64.b64encode(name.encode()).decode(),
                "attributes": attributes,
                **({"orderingKey": key} if key else {}),
            }
            for name in names
        ]
        began = now()
        answer = await self._caller.call("POST", f"topics/{_TOPIC}:publish", {"messages": messages})
        ids = [int(id_) for id_ in answer.body.get("messageIds", ())]
        times = {"began": began, "ended": now(), "outcome": answer.outcome}
        self._history.add(Perishable(who="perisher", **times, names=names, ids=ids, ttl=ttl))
        self._is_foreseen(answer)

    def _is_foreseen(self, answer: Answer) -> None:
        if answer.outcome == "failed" and answer.status != 429 and not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"publish perishables: {answer.body}")

    async def _take(self, *, final: bool = False) -> bool:
        """And ack some of it, and nack some; the rest comes again, or is past its time by then."""
        began = now()
        received = await self._pull(_SUBSCRIPTION, 1000 if final else _TAKEN)
        if not received:
            return False
        found = [came(each["message"]) for each in received]
        self._history.add(Bought(who="perisher", began=began, ended=now(), came=found))
        if final:
            await self._acknowledge(_SUBSCRIPTION, received)
            return True
        acked = [each for each in received if self._dice.random() < _ACKED]
        nacked = [each for each in received if each not in acked and self._dice.random() < _NACKED]
        await self._acknowledge(_SUBSCRIPTION, acked)
        if nacked:
            ids = {"ackIds": [each["ackId"] for each in nacked], "ackDeadlineSeconds": 0}
            await self._caller.do("POST", f"subscriptions/{_SUBSCRIPTION}:modifyAckDeadline", ids)
        return True

    async def _pull(self, subscription: str, most: int) -> list[Json]:
        body = {"maxMessages": most, "returnImmediately": True}
        answer = await self._caller.do("POST", f"subscriptions/{subscription}:pull", body)
        received: list[Json] = answer.get("receivedMessages", [])
        return received

    async def _acknowledge(self, subscription: str, received: Sequence[Json]) -> None:
        if received:
            ids = {"ackIds": [each["ackId"] for each in received]}
            await self._caller.do("POST", f"subscriptions/{subscription}:acknowledge", ids)
