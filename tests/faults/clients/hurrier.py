"""One who publishes what is urgent beside what is not, and alone consumes it, a few at a time: what is urgent is to
come first, whatever was nacked, came to nothing, was sought back or got more levels meanwhile.
"""

import base64
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from tests.faults.checks.urgent import LEAST, MAX_ATTEMPTS
from tests.faults.clients.alone import SURE_SECONDS, Alone
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History
from tests.faults.operation import Outcome
from tests.faults.operations_of_one import Hurried

_TOPIC, _SUBSCRIPTION = "load-urgent", "urgent"
_DEAD_LETTERS, _DEAD_LETTER_SUBSCRIPTION = "load-urgent-letters", "urgent-letters"
_SNAPSHOT = "before-the-urgent"
_SELDOM = 0.03  # the share of seeks, and of more levels
_MOST_SOUGHT = 2
_ACKED, _NACKED, _EXACT = 0.6, 0.5, 0.3  # shares: of what comes; of the rest of it; of the runs
_LEVELS, _MOST_LEVELS = 3, 5
_AGE = "86400s"  # which is longer than a run: nothing is old
_END_SECONDS = 90.0

What: TypeAlias = Literal["wrote", "took", "acked", "nacked", "sought", "letters"]
_VERBS: Mapping[What, tuple[str, Json]] = {
    "acked": ("acknowledge", {}),
    "nacked": ("modifyAckDeadline", {"ackDeadlineSeconds": 0}),
}


class Hurrier(Alone):
    rate = 6.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._sought = 0
        self._levels = _LEVELS

    async def _act(self) -> None:
        if self._dice.random() < _SELDOM:
            await self._dice.choice((self._seek, self._add_levels))()
        else:
            await self._dice.choice((self._write, self._take))()

    async def _end(self) -> None:
        """Take what is left, the most urgent first, until nothing is; and then the dead letters."""
        began = now()
        while await self._take(final=True) or await self._is_left(_SUBSCRIPTION):
            assert now() < began + _END_SECONDS
        began, dead_letters = now(), list[str]()
        while (received := await self._pull(_DEAD_LETTER_SUBSCRIPTION, 1000)) or await self._is_left(
            _DEAD_LETTER_SUBSCRIPTION
        ):
            dead_letters += map(_name, received or ())
            if received:
                ids = {"ackIds": [each["ackId"] for each in received]}
                await self._until_answered(f"subscriptions/{_DEAD_LETTER_SUBSCRIPTION}:acknowledge", ids)
        self._note("letters", began, dead_letters)
        await self._caller.do("DELETE", f"snapshots/{_SNAPSHOT}", fine=[404])
        await self._delete([_SUBSCRIPTION, _DEAD_LETTER_SUBSCRIPTION], [_TOPIC, _DEAD_LETTERS])

    async def _prepare(self) -> None:
        """With an age or not: both are strict, as nothing gets so old."""
        project = self._caller.project
        aged: Json = {"levels": self._levels, "age": _AGE}
        priorities = self._dice.choice((self._levels, aged))
        await self._caller.do("PUT", f"topics/{_TOPIC}", {"extensions": {"priorities": priorities}}, fine=[409])
        await self._caller.do("PUT", f"topics/{_DEAD_LETTERS}", {"extensions": {"priorities": 2}}, fine=[409])
        of_dead_letters = {"topic": f"{project}/topics/{_DEAD_LETTERS}"}
        await self._caller.do("PUT", f"subscriptions/{_DEAD_LETTER_SUBSCRIPTION}", of_dead_letters, fine=[409])
        policy = {"deadLetterTopic": f"{project}/topics/{_DEAD_LETTERS}", "maxDeliveryAttempts": MAX_ATTEMPTS}
        body: Json = {
            "topic": f"{project}/topics/{_TOPIC}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
            "enableExactlyOnceDelivery": self._dice.random() < _EXACT,
            "deadLetterPolicy": policy,
        }
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])
        of_all = {"subscription": f"{project}/subscriptions/{_SUBSCRIPTION}"}
        await self._caller.do("PUT", f"snapshots/{_SNAPSHOT}", of_all, fine=[409])

    async def _write(self) -> None:
        names = [f"hurried-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        levels = [self._dice.choice((0, 1, LEAST, LEAST)) for _ in names]
        messages = [
            {
                "data": base64.b64encode(name.encode()).decode(),
                "attributes": {} if level == LEAST else {"broker-priority": str(level)},
            }
            for name, level in zip(names, levels, strict=True)
        ]
        began = now()
        answer = await self._caller.call("POST", f"topics/{_TOPIC}:publish", {"messages": messages})
        if answer.outcome == "failed" and answer.status != 429 and not self._caller.is_denied(answer):
            self._caller.unforeseen.append(f"publish urgent ones: {answer.body}")
        self._note("wrote", began, names, answer.outcome, levels)

    async def _take(self, *, final: bool = False) -> bool:
        """Returns whether there may be more."""
        began = now()
        received = await self._pull(_SUBSCRIPTION, 1000 if final else self._dice.choice((1, 2, 5)))
        if received is None:
            self._note("took", began, [], "unknown")
            return True
        if not received:
            return False
        self._note("took", began, map(_name, received))
        acked = [each for each in received if final or self._dice.random() < _ACKED]
        nacked = [each for each in received if each not in acked and self._dice.random() < _NACKED]
        await self._settle("acked", acked, until=began + SURE_SECONDS)
        await self._settle("nacked", nacked, until=began + SURE_SECONDS)
        return True

    async def _settle(self, what: What, received: Sequence[Json], *, until: float) -> None:
        """It is known to count if it was answered by then: the ack ids named them still."""
        if not received:
            return
        verb, body = _VERBS[what]
        ids = {"ackIds": [each["ackId"] for each in received]}
        began = now()
        answer = await self._caller.call("POST", f"subscriptions/{_SUBSCRIPTION}:{verb}", ids | body)
        counts = answer.outcome == "ok" and now() < until
        self._note(what, began, map(_name, received), "ok" if counts else "unknown")

    def _note(
        self, what: What, began: float, names: Iterable[str], outcome: Outcome = "ok", levels: Sequence[int] = ()
    ) -> None:
        done = Hurried(
            who="hurrier",
            began=began,
            ended=now(),
            outcome=outcome,
            what=what,
            names=list(names),
            levels=list(levels),
        )
        self._history.add(done)

    async def _seek(self) -> None:
        if self._sought == _MOST_SOUGHT:
            return
        self._sought += 1
        began = now()
        await self._change(
            f"subscriptions/{_SUBSCRIPTION}:seek", {"snapshot": f"{self._caller.project}/snapshots/{_SNAPSHOT}"}
        )
        self._note("sought", began, [])

    async def _add_levels(self) -> None:
        """What waits stays as urgent as it is, and what is written too, since it says no level that is new."""
        if self._levels < _MOST_LEVELS:
            self._levels += 1
            body: Json = {
                "topic": {"extensions": {"priorities": self._levels}},
                "updateMask": "extensions.priorities",
            }
            await self._caller.do("PATCH", f"topics/{_TOPIC}", body)


def _name(received: Json) -> str:
    return base64.b64decode(received["message"]["data"]).decode()
