"""Our broker through aiohttp: Google's REST calls as a program would write them."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import aiohttp

from benchmarks.clients.client import Client

_ACK_DEADLINE_SECONDS = 600
_EMPTY_ANSWERS = 30  # in a row, before a backlog counts as drained: as in benchmarks/load.py
_EMPTY_PAUSE_SECONDS = 0.01


class RestClient(Client):
    """A publish is one request, however many messages; the answer follows a commit, and so does that to an ack."""

    errors = (aiohttp.ClientError,)
    keeps_messages = False
    fills_batches = False

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            f"http://{self._host}:{self._port}",
            connector=aiohttp.TCPConnector(limit=self._connections),
            raise_for_status=True,
        )
        self._path = f"/v1/projects/bench/topics/{self._topic}"
        self._subscription = ""

    async def create_topic(self) -> None:
        await self._call("PUT", self._path, {})

    async def create_subscription(self, name: str, consumers: int) -> None:
        await self._call(
            "PUT",
            f"/v1/projects/bench/subscriptions/{name}",
            {"topic": self._path.removeprefix("/v1/"), "ackDeadlineSeconds": _ACK_DEADLINE_SECONDS},
        )

    async def delete_topic(self) -> None:
        listed = await self._call("GET", f"{self._path}/subscriptions")
        for subscription in listed.get("subscriptions", []):
            await self._call("DELETE", f"/v1/{subscription}")
        await self._call("DELETE", self._path)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        messages = [{"data": base64.b64encode(body).decode()} for body in bodies]
        await self._call("POST", f"{self._path}:publish", {"messages": messages})

    async def subscribe(self, name: str) -> None:
        self._subscription = f"/v1/projects/bench/subscriptions/{name}"

    async def receive(self, most: int) -> int:
        asked = {"maxMessages": most, "returnImmediately": True}
        for _ in range(_EMPTY_ANSWERS):
            answer = await self._call("POST", f"{self._subscription}:pull", asked)
            if received := answer.get("receivedMessages"):
                break
            await asyncio.sleep(_EMPTY_PAUSE_SECONDS)
        else:
            return 0
        for each in received:
            base64.b64decode(each["message"]["data"])
        ack_ids = [each["ackId"] for each in received]
        await self._call("POST", f"{self._subscription}:acknowledge", {"ackIds": ack_ids})
        return len(ack_ids)

    async def close(self) -> None:
        await self._session.close()

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async with self._session.request(method, path, json=body) as response:
            answer: dict[str, Any] = await response.json()
            return answer
