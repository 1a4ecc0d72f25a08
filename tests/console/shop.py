"""A shop with some trouble, for the pictures of the documentation: names, figures and failures as they come up.

`open_shop` makes the resources, `trade` is a few seconds of their life.
"""

import itertools
import json
import random
from dataclasses import dataclass, field

from tests.fixtures.broker import Rest, message
from tests.fixtures.push_sink import PushSink

_COUNTRIES = ("DE", "FR", "NL", "PL", "IT")
_SCHEMA = """{"type": "record", "name": "Order", "fields": [
 {"name": "order", "type": "long"}, {"name": "total", "type": "string"}, {"name": "country", "type": "string"}]}"""
_TOPICS = {
    "orders": {"team": "checkout"},
    "payments": {"team": "checkout"},
    "shipments": {"team": "logistics"},
    "page-views": {"team": "web"},
    "refunds": {"team": "finance"},
    "dead-letters": {"team": "platform"},
}
_PULLED = {
    "orders-to-warehouse": "orders",
    "orders-to-analytics": "orders",
    "payments-to-ledger": "payments",
    "shipments-to-mail": "shipments",
    "page-views-to-search": "page-views",
}


@dataclass
class Shop:
    rest: Rest
    sink: PushSink
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(48_211))

    async def open(self) -> None:
        rest = self.rest
        for name, labels in _TOPICS.items():
            await rest.create_topic(name, labels=labels, messageRetentionDuration="86400s")
        await rest.ok("POST", f"{rest.project}/schemas?schemaId=Order", {"type": "AVRO", "definition": _SCHEMA})
        for name, topic in _PULLED.items():
            await rest.create_subscription(name, topic=topic, enableMessageOrdering="warehouse" in name)
        await rest.create_subscription("refunds-audit", topic="refunds")
        await rest.create_subscription("dead-letters-archive", topic="dead-letters")
        await rest.create_subscription(
            "orders-eu-only", topic="orders", filter='attributes.country = "DE"', labels={"team": "growth"}
        )
        dead_letters = {
            "deadLetterPolicy": {"deadLetterTopic": rest.topic("dead-letters"), "maxDeliveryAttempts": 5},
            "retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "2s"},
        }
        for name, topic, path in (
            ("payments-to-billing", "payments", "/status/503/billing"),
            ("shipments-to-tracking", "shipments", "/status/200/tracking"),
        ):
            endpoint = {"pushEndpoint": f"{self.sink.url}{path}"}
            await rest.create_subscription(name, topic=topic, pushConfig=endpoint, **dead_letters)
        await rest.create_subscription("orders-to-invoices", topic="orders", **dead_letters)
        for name, cron, topic in (
            ("nightly-report", "0 2 * * *", "orders"),
            ("stock-count", "*/15 * * * *", "refunds"),
        ):
            body = {"message": message(json.dumps({"job": name})), "schedule": cron, "topic": rest.topic(topic)}
            await rest.ok("PUT", f"{rest.project}/schedules/{name}", body)
        await self._open_access()

    async def _open_access(self) -> None:
        rest = self.rest
        for account, display_name in (
            ("warehouse", "Warehouse sync"),
            ("billing", "Billing"),
            ("ci", "Deployments"),
        ):
            body = {"accountId": account, "serviceAccount": {"displayName": display_name}}
            made = await rest.ok("POST", f"{rest.project}/serviceAccounts", body)
            await rest.ok("POST", f"{made['name']}/keys", {})
        role = {
            "title": "On call",
            "includedPermissions": ["pubsub.subscriptions.get", "pubsub.subscriptions.update"],
        }
        await rest.ok("POST", f"{rest.project}/roles", {"roleId": "on_call", "role": role})
        await rest.ok(
            "POST", f"{rest.project}/apiKeys", {"displayName": "Status page", "roles": ["roles/pubsub.viewer"]}
        )
        domain = f"{rest.project.removeprefix('projects/')}.iam.broker.internal"
        bindings = [
            {"role": "roles/pubsub.subscriber", "members": [f"serviceAccount:warehouse@{domain}"]},
            {"role": "roles/pubsub.publisher", "members": [f"serviceAccount:billing@{domain}"]},
            {"role": "roles/pubsub.admin", "members": ["user:ana@shop.example", f"serviceAccount:ci@{domain}"]},
            {"role": "roles/pubsub.viewer", "members": ["group:support@shop.example"]},
        ]
        await rest.ok("POST", f"{rest.project}:setIamPolicy", {"policy": {"bindings": bindings}})

    async def trade(self, many: int) -> None:
        """Publish about so many orders and what follows from them; consumers keep up, except for some."""
        rest = self.rest
        orders = [self._order() for _ in range(many)]
        await rest.publish(*orders, topic="orders")
        await rest.publish(
            *(message(f'{{"path": "/p/{self._number()}"}}') for _ in range(many * 3)), topic="page-views"
        )
        await rest.publish(*(self._payment() for _ in range(max(1, many // 8))), topic="payments")
        await rest.publish(
            *(message(f'{{"parcel": {self._number()}}}') for _ in range(max(1, many // 4))), topic="shipments"
        )
        for name in ("orders-to-analytics", "payments-to-ledger", "shipments-to-mail", "page-views-to-search"):
            await rest.acknowledge(await rest.pull(name, 1_000), name)
        await rest.acknowledge(await rest.pull("orders-to-warehouse", many * 7 // 10), "orders-to-warehouse")
        rejected = await rest.pull("orders-to-invoices", 1_000)
        failing = [one for one in rejected if one["message"]["attributes"]["country"] == "PL"]
        await rest.acknowledge([one for one in rejected if one not in failing], "orders-to-invoices")
        if failing:
            await rest.modify_ack_deadline(failing, 0, "orders-to-invoices")

    async def end_the_day(self) -> None:
        """Leave traces: a snapshot, an operation, refunds that nobody reads, and a message that is held."""
        rest = self.rest
        await rest.publish(*(message(f'{{"refund": {self._number()}}}') for _ in range(12)), topic="refunds")
        await rest.ok(
            "PUT",
            f"{rest.project}/snapshots/before-migration",
            {"subscription": rest.subscription("orders-to-warehouse")},
        )
        await rest.ok("POST", f"{rest.subscription('orders-to-invoices')}:redrive", {})

    def _number(self) -> int:
        return next(self.numbers)

    def _order(self) -> dict[str, object]:
        number, country = self._number(), self.chance.choice(_COUNTRIES)
        total = self.chance.randint(500, 25_000)
        order = {
            "order": number,
            "total": f"{total // 100}.{total % 100:02}",
            "country": country,
            "items": [{"sku": f"SKU-{number % 977:04}", "count": 1 + number % 3}],
        }
        body = json.dumps(order)
        return message(body, {"country": country, "channel": "web"}, orderingKey=f"customer-{number % 97:02}")

    def _payment(self) -> dict[str, object]:
        number = self._number()
        return message(
            f'{{"payment": {number}, "method": "card", "amount": "{number % 200}.00"}}', {"provider": "acme-pay"}
        )
