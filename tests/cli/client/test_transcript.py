"""The terminal session of docs/three-thousand-dead-letters.md is typed again, and prints what the page says.

`UPDATE_GOLDEN=1 pytest tests/cli/client/test_transcript.py` writes down what it prints now: look at the difference.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.client.terminal import Terminal, steady
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, message, repository

PAGE = repository() / "docs" / "three-thousand-dead-letters.md"
_SESSION = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
_PROMPT = re.compile(r"(?m)^\$ ")
_ID = re.compile(r"\b\d{16,18}\b")
_SLOWER = re.compile(r"; it went at [\d,]+ messages a second, and [\d,]+ were allowed")  # as on a busy machine
_AT_ONCE = 1000

StartBroker = Callable[..., BrokerProcess]


class Shop:
    """A project whose subscription has given up 3,000 messages, for three reasons."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = self._client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def furnish(self) -> None:
        for topic in ("orders", "failed"):
            self.call("PUT", f"topics/{topic}", {})
        policy = {"deadLetterTopic": "projects/shop/topics/failed", "maxDeliveryAttempts": 1}
        self.call("PUT", "subscriptions/morgue", {"topic": "projects/shop/topics/failed"})
        billing = {"topic": "projects/shop/topics/orders", "deadLetterPolicy": policy}
        self.call("PUT", "subscriptions/billing", billing)
        self._give_up(1800, '{"order": %d, "total": "12.50"}', "modifyAckDeadline", ackDeadlineSeconds=0)
        self._give_up(800, '{"order": %d, "total": "7000.00"}', "modifyAckDeadline", ackDeadlineSeconds=1)
        self._give_up(400, '{"order": %d, "total": 12,50}', "reject")
        self.wait(lambda: self.call("GET", "subscriptions/billing/deadLetters?groupBy=reason")["deadLetterCount"])

    def _give_up(self, count: int, body: str, verb: str, **fields: int) -> None:
        """Publish so many, and have them fail."""
        messages = [message(body % number, {"shop": "north"}) for number in range(count)]
        for first in range(0, count, _AT_ONCE):
            self.call("POST", "topics/orders:publish", {"messages": messages[first : first + _AT_ONCE]})
        failed = 0
        while failed < count:
            pulled = self.call("POST", "subscriptions/billing:pull", {"maxMessages": _AT_ONCE})
            if ack_ids := [each["ackId"] for each in pulled.get("receivedMessages", [])]:
                failed += len(ack_ids)
                self.call("POST", f"subscriptions/billing:{verb}", {"ackIds": ack_ids, **fields})

    def wait(self, count: Callable[[], int]) -> None:
        deadline = time.monotonic() + 60
        while count() < 3000:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def at_work(
    terminal: Terminal, start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    broker = start_broker("--data-dir", str(tmp_path / "data"), "--port", "0", "--min-delivery-attempts", "1")
    monkeypatch.setenv("BROKER_URL", broker.url)
    monkeypatch.setenv("BROKER_PROJECT", "shop")
    with httpx.Client(base_url=f"{broker.url}/v1/projects/shop/", verify=NO_TLS, timeout=60) as client:
        Shop(client).furnish()
    return terminal


@pytest.mark.slow
@pytest.mark.ci
def test_the_session_prints_what_the_page_says(at_work: Terminal) -> None:
    page = PAGE.read_text(encoding="utf-8")
    now: dict[str, str] = {}  # ids of the page, as they are here

    def typed_again(session: re.Match[str]) -> str:
        steps = _PROMPT.split(session[0])[1:]
        return "\n".join(f"$ {_typed(at_work, step, now)}" for step in steps)

    reported = _SESSION.sub(typed_again, page)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(reported, encoding="utf-8")
    assert steady(_SLOWER.sub("", reported)) == steady(page)


def _typed(terminal: Terminal, step: str, now: dict[str, str]) -> str:
    """A command of the page with what it prints now; ids that it printed then are known from there on."""
    line, _, before = step.partition("\n")
    done = terminal.type(_ID.sub(lambda found: now.get(found[0], found[0]), line))
    assert done.code == 0, f"{line}: {done.text}"
    now |= dict(zip(_ID.findall(before), _ID.findall(done.text), strict=False))
    if os.environ.get("UPDATE_GOLDEN"):
        line = _ID.sub(lambda found: now.get(found[0], found[0]), line)
    return f"{line}\n" + "".join(f"{printed.rstrip()}\n" for printed in done.text.splitlines())
