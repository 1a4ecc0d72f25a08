"""One who carries all that a topic retains into another: exports it, as lines of JSON or as a file of Avro, and
imports that in parts, each until it is answered.
"""

import base64
import json
import random
from collections.abc import Iterable, Sequence
from io import BytesIO

import fastavro

from tests.faults.clients.alone import Alone
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, Plan
from tests.faults.history import History
from tests.faults.operation import Came
from tests.faults.operations_of_one import Carried

_TOPIC, _TARGET, _SUBSCRIPTION = "load-carried", "load-landed", "landed"
_SETTINGS = {"extensions": {"deduplication": {"window": "86400s"}}, "messageRetentionDuration": "3600s"}
_KEYS = ("a", "b", "c", "")
_MOST_WRITTEN, _MOST_MOVED = 300, 6  # messages; times that all of them are carried
_PART = 25  # messages
_MOVES = 0.15  # the share of these among what it does
_END_SECONDS = 90.0


class Carrier(Alone):
    rate = 4.0

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._moved = self._written = 0

    async def _prepare(self) -> None:
        project = self._caller.project
        await self._caller.do("PUT", f"topics/{_TOPIC}", _SETTINGS, fine=[409])
        await self._caller.do("PUT", f"topics/{_TARGET}", {}, fine=[409])
        body = {"topic": f"{project}/topics/{_TARGET}", "ackDeadlineSeconds": ACK_DEADLINE_SECONDS}
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])

    async def _act(self) -> None:
        if self._dice.random() < _MOVES and self._moved < _MOST_MOVED:
            await self._move()
        elif self._written < _MOST_WRITTEN:
            await self._write()

    async def _end(self) -> None:
        """Carry all once more, and read what has come of all that."""
        await self._move()
        began, came = now(), list[Came]()
        while (received := await self._pull(_SUBSCRIPTION, 1000)) or await self._is_left(_SUBSCRIPTION):
            came += [_came(each["message"]) for each in received or ()]
            if received:
                ids = {"ackIds": [each["ackId"] for each in received]}
                await self._until_answered(f"subscriptions/{_SUBSCRIPTION}:acknowledge", ids)
            assert now() < began + _END_SECONDS
        self._history.add(Carried(who="carrier", began=began, ended=now(), what="read", came=came))
        await self._delete([_SUBSCRIPTION], [_TOPIC, _TARGET])

    async def _write(self) -> None:
        """Repeats are known, so each is stored once."""
        key = self._dice.choice(_KEYS)
        names = [f"carried-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        self._written += len(names)
        messages = [
            {"data": base64.b64encode(name.encode()).decode(), "attributes": {"broker-dedup-id": name}}
            | ({"orderingKey": key} if key else {})
            for name in names
        ]
        began = now()
        answer, _ = await self._until_answered(f"topics/{_TOPIC}:publish", {"messages": messages})
        came = [Came(int(id_), name) for id_, name in zip(answer.body.get("messageIds", ()), names, strict=False)]
        self._history.add(Carried(who="carrier", began=began, ended=now(), what="wrote", key=key, came=came))

    async def _move(self) -> None:
        self._moved += 1
        format_ = self._dice.choice(("JSON_LINES", "AVRO"))
        began = now()
        came, parts = await self._export(format_)
        for number, part in enumerate(parts, 1):
            path = f"topics/{_TARGET}:import?importId=move-{self._moved}&part={number}"
            await self._until_answered(path, content=part)
        self._history.add(Carried(who="carrier", began=began, ended=now(), what="moved", format=format_, came=came))

    async def _export(self, format_: str) -> tuple[list[Came], list[bytes]]:
        """All of it, and what to import.  One that broke off, and so ends with why, is asked for again."""
        while True:
            answer, _ = await self._until_answered(f"topics/{_TOPIC}:export", {"format": format_})
            if format_ == "AVRO":
                came = [Came(int(each["message_id"]), each["data"].decode()) for each in _records(answer.content)]
                return came, [answer.content] * bool(came)
            lines = answer.content.splitlines(keepends=True)
            if not (lines and lines[-1].startswith(b'{"error":')):
                came = [_came(json.loads(line)) for line in lines]
                return came, [b"".join(lines[first : first + _PART]) for first in range(0, len(lines), _PART)]


def _records(content: bytes) -> Iterable[Json]:
    return fastavro.reader(BytesIO(content)) if content else ()  # type: ignore[return-value]


def _came(message: Json) -> Came:
    return Came(int(message["messageId"]), base64.b64decode(message["data"]).decode())
