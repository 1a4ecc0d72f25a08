"""A publisher that withdraws some of what it published, and puts other messages in the place of some.

It also consumes, so that messages are in every state when they are withdrawn: to come later, not out yet, out, come
back, done with.
"""

import asyncio
import base64
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tests.faults.clients.actor import Actor
from tests.faults.clients.lease import now
from tests.faults.clients.repeater import came
from tests.faults.clients.rest import Answer, Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History, Retract, Took, Wrote

_TOPIC, _SUBSCRIPTION = "load-withdrawn", "withdrawn"
_LATER, _ACKED = 0.2, 0.5  # shares: of publishes; of what it receives
_MOST_SECONDS = 2.0  # ahead
_KNOWN = 40  # the last ids, of which it chooses
_TAKEN = 5  # messages of a pull
_END_SECONDS = 60.0


class Retractor(Actor):
    rate = 4.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._ids: list[int] = []

    async def _prepare(self) -> None:
        path = f"topics/{_TOPIC}"
        await self._caller.do("PUT", path, {"extensions": {"delay": True}}, fine=[409])
        body = {"topic": f"{self._caller.project}/{path}", "ackDeadlineSeconds": ACK_DEADLINE_SECONDS}
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])

    async def _act(self) -> None:
        acts = [self._write] * 4 + [self._take] * 3 + [self._retract, self._replace]
        await self._dice.choice(acts)()

    async def _end(self) -> None:
        """Take what is left, until nothing is."""
        began, found = now(), list[Json]()
        while received := await self._pull(1000) or await self._is_left():
            assert now() < began + _END_SECONDS, received
            if isinstance(received, list):
                found += received
                await self._acknowledge(received)
        self._add_taken(began, found, final=True)
        await self._delete([_SUBSCRIPTION], [_TOPIC])

    async def _is_left(self) -> bool:
        """Something waits for its time, or for its ack deadline."""
        waiting = await self._caller.do("GET", f"topics/{_TOPIC}/scheduled")
        position = await self._caller.do("GET", f"subscriptions/{_SUBSCRIPTION}/snapshot")
        out = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
        if int(position["undeliveredMessages"]) or out or waiting.get("scheduledMessages"):
            await asyncio.sleep(0.1)
            return True
        return False

    # --- what it does ------------------------------------------------------------------------------------------

    def _new(self) -> tuple[str, Json]:
        name = f"written-{next(self._count)}"
        attributes = {}
        if self._dice.random() < _LATER:
            at = datetime.now(UTC) + timedelta(seconds=self._dice.uniform(0.1, _MOST_SECONDS))
            attributes["broker-deliver-at"] = at.isoformat(timespec="milliseconds")
        return name, {"data": base64.b64encode(name.encode()).decode(), "attributes": attributes | {"n": name}}

    async def _write(self) -> None:
        new = [self._new() for _ in range(self._dice.choice((1, 2, 5)))]
        began = now()
        body = {"messages": [message for _, message in new]}
        answer = await self._caller.call("POST", f"topics/{_TOPIC}:publish", body)
        ids = [int(id_) for id_ in answer.body.get("messageIds", ())]
        names = [name for name, _ in new]
        self._history.add(
            Wrote(who="retractor", began=began, ended=now(), outcome=answer.outcome, names=names, ids=ids)
        )
        self._is_foreseen(answer, "publish", 429)
        self._ids = (self._ids + ids)[-_KNOWN:]

    async def _retract(self) -> None:
        """Until it is answered, as a publisher would that must be certain."""
        if not self._ids:
            return
        ids = self._dice.sample(self._ids, min(len(self._ids), self._dice.choice((1, 2, 5))))
        body = {"messageIds": [str(id_) for id_ in ids]}
        while await self._withdraw("retract", ids, body) == "unknown":
            pass

    async def _replace(self) -> None:
        """Likewise: the same call again publishes nothing more."""
        if not self._ids:
            return
        name, message = self._new()
        id_ = self._dice.choice(self._ids)
        body = {"messageId": str(id_), "message": message}
        while await self._withdraw("replace", [id_], body, put=name) == "unknown":
            pass

    async def _withdraw(self, verb: str, ids: list[int], body: Json, *, put: str = "") -> str:
        began = now()
        answer = await self._caller.call("POST", f"topics/{_TOPIC}:{verb}", body)
        reported = answer.body.get("subscriptions", ())
        never_out = [int(id_) for each in reported for id_ in each.get("neverHandedOut", ())]
        put_id = int(answer.body.get("replacementId", 0))
        self._history.add(
            Retract(
                who="retractor",
                began=began,
                ended=now(),
                outcome=answer.outcome,
                ids=ids,
                never_out=never_out,
                put=put,
                put_id=put_id,
            )
        )
        # What was retracted before, or is not retained any more, is not replaced.
        self._is_foreseen(answer, verb, 429, *([400] if put else []))
        self._ids += [put_id] * bool(put_id)
        return answer.outcome

    def _is_foreseen(self, answer: Answer, verb: str, *statuses: int) -> None:
        if answer.outcome == "failed" and answer.status not in statuses and not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"{verb}: {answer.body}")

    # --- what it receives --------------------------------------------------------------------------------------

    async def _take(self) -> None:
        """And ack some of it; the rest comes again."""
        began = now()
        body = {"maxMessages": _TAKEN, "returnImmediately": True}
        answer = await self._caller.call("POST", f"subscriptions/{_SUBSCRIPTION}:pull", body)
        received = answer.body.get("receivedMessages", [])
        self._add_taken(began, received)
        if chosen := [each for each in received if self._dice.random() < _ACKED]:
            body = {"ackIds": [each["ackId"] for each in chosen]}
            await self._caller.call("POST", f"subscriptions/{_SUBSCRIPTION}:acknowledge", body)

    def _add_taken(self, began: float, received: list[Json], *, final: bool = False) -> None:
        found = [came(each["message"]) for each in received]
        if found or final:
            self._history.add(Took(who="retractor", began=began, ended=now(), came=found, final=final))

    async def _pull(self, most: int) -> list[Json]:
        body = {"maxMessages": most, "returnImmediately": True}
        answer = await self._caller.do("POST", f"subscriptions/{_SUBSCRIPTION}:pull", body)
        received: list[Json] = answer.get("receivedMessages", [])
        return received

    async def _acknowledge(self, received: list[Json]) -> None:
        body = {"ackIds": [each["ackId"] for each in received]}
        await self._caller.do("POST", f"subscriptions/{_SUBSCRIPTION}:acknowledge", body)
