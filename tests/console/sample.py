"""A project with something on every page."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.fixtures.broker import Rest, eventually, message
from tests.fixtures.push_sink import PushSink

ROWS = 60  # more than a page shows
# What the pages of searching and of access are asked; the others take no notice.
QUERY = {"q": "orders", "principal": "user:ana@example.com", "permission": "pubsub.topics.publish"}
HOSTILE = "<script>alert('x')</script>{{ 7777*7777 }}\u202eevil\x07"
AVRO = {"type": "AVRO", "definition": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'}


@dataclass
class Sample:
    """`ids`: what fills the places in the paths of pages.  `message_id`: of a message with hostile contents."""

    ids: Mapping[str, str]
    message_id: str

    def page(self, path: str) -> str:
        """Return the address of a page."""
        return "/console/" + path.format(**self.ids)

    def asked_page(self, path: str) -> str:
        """Return the address of a page with a question, without which some pages show little."""
        return f"{self.page(path)}?{urlencode(QUERY)}"


async def fill(rest: Rest, sink: PushSink) -> Sample:
    await rest.create_topic("orders")
    await rest.create_topic("morgue")
    await rest.create_subscription("mail", topic="orders")
    await rest.create_subscription("audit", topic="orders", enableMessageOrdering=True, ackDeadlineSeconds=600)
    await rest.create_subscription("reader", topic="morgue")
    await rest.create_subscription(
        "billing",
        topic="orders",
        pushConfig={"pushEndpoint": f"{sink.url}/status/503"},
        deadLetterPolicy={"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 5},
        retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"},
    )
    ordering_key = HOSTILE.replace("\x07", "")
    [message_id] = await rest.publish(message(HOSTILE, {"env": HOSTILE}, orderingKey=ordering_key), topic="orders")
    await rest.publish(message('{"order": 12345678901234567890, "order": [1, {"a": 1e400}]}'), topic="orders")
    await rest.acknowledge(await rest.pull("mail", 1), "mail")
    await rest.publish(message("behind it", orderingKey=ordering_key), topic="orders")
    await rest.pull("audit", 1)
    await rest.ok("PUT", f"{rest.project}/schedules/nightly", {**_SCHEDULE, "topic": rest.topic("orders")})
    await rest.ok("PUT", f"{rest.project}/snapshots/before", {"subscription": rest.subscription("mail")})
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=Order", AVRO)
    await rest.ok("POST", f"{rest.project}/marks", {"text": HOSTILE, "labels": {"release": "7"}})
    account = await rest.ok("POST", f"{rest.project}/serviceAccounts", {"accountId": "reporting"})
    await rest.ok("POST", f"{account['name']}/keys", {})
    auditor = {"title": HOSTILE, "includedPermissions": ["pubsub.topics.get", "pubsub.topics.list"]}
    await rest.ok("POST", f"{rest.project}/roles", {"roleId": "auditor", "role": auditor})
    key = {"displayName": HOSTILE, "roles": ["roles/pubsub.viewer"]}
    api_key = await rest.ok("POST", f"{rest.project}/apiKeys", key)
    bindings = [
        {"role": "roles/pubsub.viewer", "members": ["user:ana@example.com", f"serviceAccount:{account['email']}"]}
    ]
    for resource in (rest.project, rest.topic("orders")):
        await rest.ok("POST", f"{resource}:setIamPolicy", {"policy": {"bindings": bindings}})
    started = await rest.ok("POST", f"{rest.subscription('billing')}:redrive", {})
    return Sample(
        {
            "project": rest.project.removeprefix("projects/"),
            "topic": "orders",
            "subscription": "billing",
            "message": message_id,
            "operation": started["name"].rpartition("/")[2],
            "schedule": "nightly",
            "schema": "Order",
            "snapshot": "before",
            "account": account["email"],
            "key": api_key["name"].rpartition("/")[2],
            "link": "0123456789abcdef0123456789abcdef",  # share links need callers who show who they are
            "role": "auditor",
            "predefined": "pubsub.viewer",
        },
        message_id,
    )


async def until_settled(rest: Rest) -> None:
    """Wait until the pushes of a sample have failed for good, and its operation is done: then nothing changes."""

    async def is_dead_lettered() -> bool:
        found = await rest.ok("GET", f"{rest.subscription('billing')}/deadLetters")
        running = [
            one for one in (await rest.ok("GET", f"{rest.project}/operations"))["operations"] if "done" not in one
        ]
        return len(found.get("deadLetters", ())) == 3 and not running

    await eventually(is_dead_lettered)


async def fill_up(rest: Rest, push_sink: PushSink, sample: Sample | None = None) -> Sample:
    """More of most things than a page shows, with long names, bodies and attributes.

    `sample`: what the project has already.
    """
    sample = sample or await fill(rest, push_sink)
    await rest.create_subscription(
        "failing",
        topic="orders",
        deadLetterPolicy={"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 5},
        retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"},
    )
    for number in range(ROWS):
        name = f"customer-relationship-events-{number:03}"
        await rest.create_topic(name, labels={"team": "growth", "tier": "two"})
        await rest.create_subscription(f"{name}-to-the-warehouse", topic=name)
        await rest.ok("PUT", f"{rest.project}/snapshots/{name}", {"subscription": rest.subscription("mail")})
        account = {"accountId": f"worker-of-team-{number:03}"}
        await rest.ok("POST", f"{rest.project}/serviceAccounts", account)
        await rest.publish(f"{number}", topic=name)
    attributes = {"region": "eu-west", "source": "checkout", "traceparent": "00-" + "ab" * 24}
    await rest.publish(
        *(message('{"order": "' + "x" * 2_000 + '"}', attributes, orderingKey="user-4711") for _ in range(ROWS)),
        topic="orders",
    )
    for _ in range(5):
        await rest.modify_ack_deadline(await rest.pull("failing", 1_000), 0, "failing")
    return sample


_SCHEDULE = {"message": {"data": "YQ=="}, "interval": "3600s"}
