"""A masking rule that is set through one broker holds in another one on the same database."""

import base64
import json
from collections.abc import Callable

import httpx

from broker.core.catalog.resource_cache import AGEING_SECONDS
from tests.features.inspect.test_inspection import tailing
from tests.fixtures.access import guarded
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, eventually

PLAIN, MASKED = "plain-text", "[masked]"


async def test_a_rule_holds_in_another_process_and_on_a_tail_that_is_open_there(
    database_url: str, start_broker: Callable[..., BrokerProcess]
) -> None:
    """Within AGEING_SECONDS, so that the other process has been told: it would not have read the rules again."""
    async with guarded(database_url) as here:
        topic, rule = f"{here.project}/topics/payments", f"{here.project}/maskingRules/shop"
        await here.ok("PUT", topic, {"messageRetentionDuration": "600s"})
        account = await here.account("looker", role="roles/pubsub.messageViewer")
        headers = here.bearer(await here.key(account))
        other = start_broker("--database-url", database_url, "--port", "0", "--auth", "required")
        async with httpx.AsyncClient(base_url=other.url, headers=headers, verify=NO_TLS, timeout=60) as client:
            there = Rest(client, here.project)

            async def publish() -> str:
                data = base64.b64encode(json.dumps({"card": PLAIN}).encode()).decode()
                body = {"messages": [{"data": data, "attributes": {"shop": PLAIN}}]}
                return str((await here.ok("POST", f"{topic}:publish", body))["messageIds"][0])

            async def listed() -> tuple[str, str]:
                """The attribute and the field of the newest message, as the other process shows them."""
                return seen((await there.ok("GET", f"{topic}/messages"))["messages"][0])

            async def is_listed(expected: tuple[str, str]) -> bool:
                return await listed() == expected

            await publish()
            assert await listed() == (PLAIN, PLAIN)
            async with tailing(there, topic) as events:
                for method, body, expected in (
                    ("PUT", {"topics": ["pay*"], "attributes": ["shop"]}, (MASKED, PLAIN)),
                    ("PATCH", {"attributes": [], "fields": ["$.card"]}, (PLAIN, MASKED)),
                    ("DELETE", None, (PLAIN, PLAIN)),
                ):
                    await here.ok(method, rule, body)
                    await eventually(lambda expected=expected: is_listed(expected), seconds=AGEING_SECONDS)
                    published = await publish()
                    _, event = await events.next()
                    assert event["messageId"] == published
                    assert seen(event) == expected


def seen(message: Json) -> tuple[str, str]:
    return message["attributes"]["shop"], json.loads(base64.b64decode(message["data"]))["card"]
