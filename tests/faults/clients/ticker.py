"""Schedules that tick each second or two while everything is broken, and all that came of them, at the end."""

import base64
from datetime import datetime

from tests.faults.clients.actor import Actor
from tests.faults.clients.lease import now
from tests.faults.clients.rest import Json
from tests.faults.history import Ticked

_TOPIC, _SUBSCRIPTION = "load-ticks", "ticks"
_SCHEDULES: dict[str, tuple[float, Json]] = {
    "each-second": (1.0, {"interval": "1s"}),
    "each-second-by-the-clock": (1.0, {"schedule": "* * * * * *", "timeZone": "Europe/Berlin"}),
    "each-other-second": (2.0, {"schedule": "*/2 * * * * *"}),
}


class Ticker(Actor):
    rate = 1_000.0  # it only waits for its end

    async def _prepare(self) -> None:
        path = f"topics/{_TOPIC}"
        await self._caller.do("PUT", path, {}, fine=[409])
        where = f"{self._caller.project}/{path}"
        body = {"topic": where, "ackDeadlineSeconds": 60}
        await self._caller.do("PUT", f"subscriptions/{_SUBSCRIPTION}", body, fine=[409])
        template = {"data": base64.b64encode(b"{{schedule}} {{tick}} {{time}}").decode()}
        for name, (_, timing) in _SCHEDULES.items():
            made = {"topic": where, "template": template, "missed": "ALL"} | timing
            await self._caller.do("PUT", f"schedules/{name}", made)

    async def _act(self) -> None:
        """Nothing that ticked is collected before the end: so all of it is there to be told apart."""
        await self.stopping.wait()

    async def _end(self) -> None:
        """Nothing ticks any more, and all that did has come."""
        began = now()
        reported = {name: await self._caller.do("POST", f"schedules/{name}:pause", {}) for name in _SCHEDULES}
        came: dict[str, list[tuple[int, int, float]]] = {name: [] for name in _SCHEDULES}
        while received := await self._pull():
            for message in received:
                name, number, at = base64.b64decode(message["data"]).decode().split()
                tick = int(message["messageId"]), int(number), datetime.fromisoformat(at).timestamp()
                came[name].append(tick)
        for name, (step, _) in _SCHEDULES.items():
            ticks = int(reported[name].get("ticks", 0))
            self._history.add(
                Ticked(
                    who="ticker",
                    began=began,
                    ended=now(),
                    schedule=name,
                    step=step,
                    ticks=ticks,
                    came=came[name],
                )
            )
            await self._caller.do("DELETE", f"schedules/{name}", fine=[404])
        await self._delete([_SUBSCRIPTION], [_TOPIC])

    async def _pull(self) -> list[Json]:
        path = f"subscriptions/{_SUBSCRIPTION}"
        answer = await self._caller.do("POST", f"{path}:pull", {"maxMessages": 1000, "returnImmediately": True})
        received = answer.get("receivedMessages", [])
        if received:
            await self._caller.do("POST", f"{path}:acknowledge", {"ackIds": [each["ackId"] for each in received]})
        return [each["message"] for each in received]
