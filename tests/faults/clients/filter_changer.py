"""One who changes the filter of a subscription, while messages of both kinds are published, received and sought.

It publishes and consumes by itself: so the checks know which filter each message was published under
(faults/checks/filters.py).
"""

import base64
import random
from collections.abc import Sequence

from tests.faults.clients.alone import Alone
from tests.faults.clients.lease import now
from tests.faults.clients.rest import RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History
from tests.faults.operations_of_one import Filtered

_TOPIC, _SUBSCRIPTION = "load-filtered", "filtered"
_SETTINGS = {"extensions": {"deduplication": {"window": "86400s"}}, "messageRetentionDuration": "3600s"}
_EVER = "2020-01-01T00:00:00Z"
_KINDS = ("red", "blue")
_KEYS = ("a", "b", "")
_MOST_CHANGES = 15  # a subscription keeps 20 earlier filters
_TAKEN, _ACKED = 20, 0.7  # messages of a pull; the share of these
_END_SECONDS = 90.0


class FilterChanger(Alone):
    rate = 5.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._path = f"subscriptions/{_SUBSCRIPTION}"
        self._changes = 0

    async def _prepare(self) -> None:
        await self._caller.do("PUT", f"topics/{_TOPIC}", _SETTINGS, fine=[409])
        body = {
            "topic": f"{self._caller.project}/topics/{_TOPIC}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
            "enableMessageOrdering": self._dice.random() < 0.5,
        }
        await self._caller.do("PUT", self._path, body, fine=[409])

    async def _act(self) -> None:
        acts = [*[self._write] * 4, *[self._take] * 6, *[self._change_filter] * 2, self._seek]
        await self._dice.choice(acts)()

    async def _end(self) -> None:
        """Take what is left, until nothing is."""
        began = now()
        while await self._take(all_of_it=True) or await self._is_left(_SUBSCRIPTION):
            assert now() < began + _END_SECONDS
        self._note("left", began)
        await self._delete([_SUBSCRIPTION], [_TOPIC])

    async def _write(self) -> None:
        """Repeats are known, so each is stored once."""
        kind, key = self._dice.choice(_KINDS), self._dice.choice(_KEYS)
        names = [f"filtered-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        messages = [
            {
                "data": base64.b64encode(name.encode()).decode(),
                "attributes": {"broker-dedup-id": name, "kind": kind},
                **({"orderingKey": key} if key else {}),
            }
            for name in names
        ]
        began = now()
        await self._until_answered(f"topics/{_TOPIC}:publish", {"messages": messages})
        self._note("wrote", began, names=names, kind=kind)

    async def _take(self, *, all_of_it: bool = False) -> bool:
        """Takes messages and acks some of them.  Whether there may be more."""
        began = now()
        received = await self._pull(_SUBSCRIPTION, 1000 if all_of_it else _TAKEN)
        if not received:
            return received is None
        names = [base64.b64decode(each["message"]["data"]).decode() for each in received]
        self._note("took", began, names=names)
        chosen = [each["ackId"] for each in received if all_of_it or self._dice.random() < _ACKED]
        if chosen:
            await self._until_answered(f"{self._path}:acknowledge", {"ackIds": chosen})
        return True

    async def _change_filter(self) -> None:
        if self._changes == _MOST_CHANGES:
            return
        self._changes += 1
        kind = self._dice.choice((*_KINDS, ""))
        began = now()
        await self._change(f"{self._path}:setFilter", {"filter": f'attributes.kind = "{kind}"' if kind else ""})
        self._note("changed", began, kind=kind)

    async def _seek(self) -> None:
        """To the begin: all messages that matched when they were published come again."""
        began = now()
        await self._change(f"{self._path}:seek", {"time": _EVER})
        self._note("sought", began)

    def _note(self, what: str, began: float, **fields: object) -> None:
        self._history.add(Filtered(who="filter changer", began=began, ended=now(), what=what, **fields))  # type: ignore[arg-type]
