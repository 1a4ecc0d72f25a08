"""A shop with some trouble, for the pictures of the documentation: names, figures and failures as they come up.

`open` makes the resources, `trade` is a second of their life, and `end_the_day` leaves what a day leaves.
"""

import itertools
import json
import random
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.fixtures.broker import Rest, message
from tests.fixtures.push_sink import PushSink

CUSTOMERS = 5  # whose orders a second has
_COUNTRIES = ("DE", "FR", "NL", "PL", "IT")
_FIELDS = [
    {"name": "order", "type": "long"},
    {"name": "total", "type": "string"},
    {"name": "country", "type": "string"},
]
_OVERLOADED = '{"error": "upstream connect error", "detail": "connection pool exhausted"}'
_TOPICS = {
    "orders": {"team": "checkout"},
    "payments": {"team": "checkout"},
    "shipments": {"team": "logistics"},
    "page-views": {"team": "web"},
    "refunds": {"team": "finance"},
    "clicks": {"team": "web"},
    "dead-letters": {"team": "platform"},
}
_DELIVERED = ("orders-to-analytics", "payments-to-ledger", "shipments-to-mail", "page-views-to-search")
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
        await rest.ok("POST", f"{rest.project}/schemas?schemaId=Order", _avro(_FIELDS))
        channel = {"name": "channel", "type": "string", "default": "web"}
        await rest.ok("POST", f"{rest.project}/schemas/Order:commit", {"schema": _avro([*_FIELDS, channel])})
        schema = {"schema": f"{rest.project}/schemas/Order", "encoding": "JSON"}
        for name, labels in _TOPICS.items():
            settings = {"schemaSettings": schema} if name == "orders" else {}
            await rest.create_topic(name, labels=labels, messageRetentionDuration="86400s", **settings)
        for name, topic in _PULLED.items():
            await rest.create_subscription(name, topic=topic)
        await rest.create_subscription("refunds-audit", topic="refunds")
        await rest.create_subscription("dead-letters-archive", topic="dead-letters")
        await rest.create_subscription("orders-to-packing", topic="orders", enableMessageOrdering=True)
        await rest.create_subscription(
            "orders-eu-only", topic="orders", filter='attributes.country = "DE"', labels={"team": "growth"}
        )
        dead_letters = {
            "deadLetterPolicy": {"deadLetterTopic": rest.topic("dead-letters"), "maxDeliveryAttempts": 5},
            "retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "2s"},
        }
        for name, topic, path in (
            ("payments-to-billing", "payments", "/billing"),
            ("shipments-to-tracking", "shipments", "/tracking"),
            ("orders-to-crm", "orders", "/flaky/crm/422-45_500-2_slow-10"),
        ):
            endpoint = {"pushEndpoint": f"{self.sink.url}{path}"}
            await rest.create_subscription(name, topic=topic, pushConfig=endpoint, **dead_letters)
        await self.sink.program("/billing", f"/body/503/{quote(_OVERLOADED)}")
        await rest.create_subscription("orders-to-invoices", topic="orders", **dead_letters)
        for name, when, topic in (
            ("nightly-report", {"schedule": "0 2 * * *", "timeZone": "Europe/Berlin"}, "clicks"),
            ("stock-count", {"schedule": "* * * * *"}, "refunds"),
            ("price-refresh", {"interval": "30s"}, "shipments"),
        ):
            body = {"message": message(json.dumps({"job": name})), "topic": rest.topic(topic), **when}
            await rest.ok("PUT", f"{rest.project}/schedules/{name}", body)
        await self._open_access()

    async def _open_access(self) -> None:
        rest = self.rest
        for account, display_name in (
            ("warehouse", "Warehouse sync"),
            ("billing", "Billing"),
            ("deployments", "Deployments"),
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
            {
                "role": "roles/pubsub.admin",
                "members": ["user:ana@shop.example", f"serviceAccount:deployments@{domain}"],
            },
            {"role": "roles/pubsub.viewer", "members": ["group:support@shop.example"]},
        ]
        await rest.ok("POST", f"{rest.project}:setIamPolicy", {"policy": {"bindings": bindings}})

    async def trade(self, many: int) -> None:
        """Publish about so many orders and what follows from them; consumers keep up, except for some."""
        rest = self.rest
        customers = [f"customer-{self.chance.randrange(97):02}" for _ in range(CUSTOMERS)]
        orders = [self._order(customers[number % CUSTOMERS]) for number in range(many)]
        for customer in customers:  # a request has messages of one key
            if own := [order for order in orders if order["orderingKey"] == customer]:
                await rest.publish(*own, topic="orders")
        await rest.publish(
            *(message(f'{{"path": "/p/{self._number()}"}}') for _ in range(many * 3)), topic="page-views"
        )
        await rest.publish(*(self._payment() for _ in range(max(1, many // 8))), topic="payments")
        await rest.publish(
            *(message(f'{{"parcel": {self._number()}}}') for _ in range(max(1, many // 4))), topic="shipments"
        )
        for name in _DELIVERED:
            await rest.acknowledge(await rest.pull(name, 1_000), name)
        await rest.acknowledge(await rest.pull("orders-to-warehouse", many * 7 // 10), "orders-to-warehouse")
        packing = await rest.pull("orders-to-packing", 1_000)
        # An order of 89 stays outstanding, and blocks its key.
        if packed := [one for one in packing if _number_of(one) % 89]:
            await rest.acknowledge(packed, "orders-to-packing")
        rejected = await rest.pull("orders-to-invoices", 1_000)
        failing = [one for one in rejected if one["message"]["attributes"]["country"] == "PL"]
        await rest.acknowledge([one for one in rejected if one not in failing], "orders-to-invoices")
        if failing:
            await rest.modify_ack_deadline(failing, 0, "orders-to-invoices")

    async def deploy(self, release: str) -> None:
        """Mark that a release of the checkout went out, and redrive what the one before has left."""
        rest = self.rest
        mark = {"text": f"checkout {release} deployed", "labels": {"release": release.replace(".", "-")}}
        await rest.ok("POST", f"{rest.project}/marks", mark)
        await rest.ok("POST", f"{rest.subscription('orders-to-invoices')}:redrive", {})

    async def end_the_day(self) -> None:
        """Leave traces: a snapshot, operations, refunds that nobody reads, a pause and a freeze."""
        rest = self.rest
        await rest.publish(*(message(f'{{"refund": {self._number()}}}') for _ in range(12)), topic="refunds")
        await rest.ok("POST", f"{rest.subscription('refunds-audit')}:pause", {"reason": "The ledger is migrated."})
        await rest.ok("POST", f"{rest.topic('clicks')}:freeze", {"reason": "Replaced by page-views"})
        for name in ("before-migration", "before-release-2.14"):
            body = {"subscription": rest.subscription("orders-to-warehouse")}
            await rest.ok("PUT", f"{rest.project}/snapshots/{name}", body)
        await rest.ok("POST", f"{rest.subscription('orders-to-crm')}:redrive", {"reasons": ["push 500"]})
        copied = {"targetTopic": rest.topic("page-views"), "maxMessagesPerSecond": 1}
        await rest.ok("POST", f"{rest.topic('shipments')}:copy", copied)

    def _number(self) -> int:
        return next(self.numbers)

    def _order(self, customer: str) -> dict[str, object]:
        number, country = self._number(), self.chance.choice(_COUNTRIES)
        total = self.chance.randint(500, 25_000)
        order = {
            "order": number,
            "total": f"{total // 100}.{total % 100:02}",
            "country": country,
            "channel": "web",
        }
        body = json.dumps(order)
        return message(body, {"country": country, "channel": "web"}, orderingKey=customer)

    def _payment(self) -> dict[str, object]:
        number = self._number()
        return message(
            f'{{"payment": {number}, "method": "card", "amount": "{number % 200}.00"}}', {"provider": "acme-pay"}
        )


def _avro(fields: list[dict[str, str]]) -> dict[str, str]:
    definition = {"type": "record", "name": "Order", "fields": fields}
    return {"type": "AVRO", "definition": json.dumps(definition, indent=2)}


def _number_of(received: dict[str, Any]) -> int:
    """Return the number of an order that was received."""
    number: int = json.loads(b64decode(received["message"]["data"]))["order"]
    return number
