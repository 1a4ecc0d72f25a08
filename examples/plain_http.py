"""The client that the examples in plain HTTP share: calls of the API, with JSON in both directions."""

import base64
import os
from typing import Any

import httpx


class Broker:
    """The broker of PUBSUB_EMULATOR_HOST.  Within a `with` block, which begins and ends without some resources."""

    def __init__(self, *names: str, url: str = "", headers: dict[str, str] | None = None) -> None:
        """`names`: the resources that the example makes, in the order in which they are deleted.

        `url`: another broker.  `headers`: sent with each call, such as credentials.
        """
        self._names = names
        url = url or f"http://{os.environ.get('PUBSUB_EMULATOR_HOST', '127.0.0.1:8085')}"
        self._client = httpx.Client(base_url=f"{url}/v1/", headers=headers, timeout=60)

    def __enter__(self) -> "Broker":
        self._clean_up()
        return self

    def __exit__(self, *_: object) -> None:
        self._clean_up()
        self._client.close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Returns the decoded answer.  Raises httpx.HTTPStatusError."""
        return self._client.request(method, path, json=body).raise_for_status().json()

    def publish(self, topic: str, *texts: str, **attributes: str) -> list[str]:
        """Publishes a message for each text and returns their ids."""
        messages = [{"data": base64.b64encode(text.encode()).decode(), "attributes": attributes} for text in texts]
        ids: list[str] = self.call("POST", f"{topic}:publish", {"messages": messages})["messageIds"]
        return ids

    def pull(self, subscription: str, most: int = 100) -> list[str]:
        """Acknowledges all messages that can be delivered now, `most` at a time, and returns their texts."""
        texts: list[str] = []
        request = {"maxMessages": most, "returnImmediately": True}
        while got := self.call("POST", f"{subscription}:pull", request).get("receivedMessages"):
            self.call("POST", f"{subscription}:acknowledge", {"ackIds": [each["ackId"] for each in got]})
            texts += [base64.b64decode(each["message"].get("data", "")).decode() for each in got]
        return texts

    def _clean_up(self) -> None:
        for name in self._names:
            self._client.delete(name)  # 404 if there is none
