"""The calls that have a preview, for tests.

Each says how to make the resources that it is about, what other clients do to these at the same time, and how to
find out by other calls what it has done.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import httpx

from broker.model.timestamps import parse_timestamp
from tests.architecture.surface import operations
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes
from tests.fixtures.registered import specification

LATER, EVER = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}%s]}'


def calls_with_previews() -> set[str]:
    """The ids of the operations that the specification gives `validateOnly`, as a parameter or a field."""
    return {operation["operationId"] for operation in operations().values() if _has_preview(operation)}


def _has_preview(operation: Json) -> bool:
    if any(_resolved(parameter)["name"] == "validateOnly" for parameter in operation.get("parameters", ())):
        return True
    contents = _resolved(operation.get("requestBody", {})).get("content", {}).values()
    return any("validateOnly" in _properties(content.get("schema", {})) for content in contents)


def _properties(schema: Json) -> set[str]:
    schema = _resolved(schema)
    parts = [part for kind in ("allOf", "anyOf", "oneOf") for part in schema.get(kind, ())]
    return {*schema.get("properties", ())}.union(*map(_properties, parts))


def _resolved(node: Json) -> Json:
    while "$ref" in node:
        found: Any = specification()
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


async def destroy(rest: Rest, call: str, **asked: object) -> httpx.Response:
    """Calls one of the destructive calls; `asked` are fields, or parameters of a DELETE."""
    method, path = call.split(" ")
    if method == "DELETE":
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}
        return await rest.call(method, path, params=texts)
    return await rest.call(method, path, asked)


class PreviewedCall(ABC):
    """A call that has a preview, in one history of its own.

    `limits`: the fields by which the call can be held to its preview.  `refusals`: statuses of the call, besides
    409, if others have removed what it is about.
    """

    limits: Sequence[str] = ("expectedCount", "tolerancePercent", "asOf")
    refusals: Sequence[int] = ()

    def __init__(self, rest: Rest, sink: PushSink, dice: Random, name: str) -> None:
        self.rest, self.sink, self.dice, self.name = rest, sink, dice, name

    @abstractmethod
    async def begin(self) -> None:
        """Makes the resources that the call is about."""

    @abstractmethod
    def call(self) -> tuple[str, Json]:
        """The method and path, and the fields."""

    @abstractmethod
    def meanwhile(self) -> Iterable[Awaitable[object]]:
        """Returns the calls of other clients, which are sent at the same time."""

    @abstractmethod
    async def affected(self, answer: Json | None) -> int:
        """Counts by other calls what the call has removed or changed; `answer` is None if it was refused."""

    def count_of(self, preview: Json) -> int:
        assert preview["validateOnly"] is True
        return int(preview["count"])


# --- messages ---------------------------------------------------------------------------------------------------


class OfMessages(PreviewedCall):
    """A topic with a subscription, which notes the messages that were published and those whose ack took effect."""

    verb = ""
    takes_acked = False  # counts messages that are acknowledged and retained, too
    is_removal = False  # of the subscription or the topic
    minimum = 0  # messages that the call needs

    def __init__(self, rest: Rest, sink: PushSink, dice: Random, name: str) -> None:
        super().__init__(rest, sink, dice, name)
        self.published: set[str] = set()
        self.before: set[str] = set()  # messages that were published when the call began
        self.previewed = 0
        self.acked: set[str] = set()
        self.held: dict[str, str] = {}  # message ids by ack id

    @property
    def topic(self) -> str:
        return self.rest.topic(self.name)

    @property
    def subscription(self) -> str:
        return self.rest.subscription(self.name)

    async def begin(self) -> None:
        ordered, filtered = self.dice.random() < 0.3, self.dice.random() < 0.3
        retained = {"messageRetentionDuration": "600s"} if self.verb == "delete topic" else {}
        await self.rest.create_topic(self.name, **retained)
        fields = {"enableMessageOrdering": ordered, "enableExactlyOnceDelivery": True, "ackDeadlineSeconds": 600}
        fields |= {"filter": "attributes:taken"} if filtered else {}
        await self.rest.create_subscription(self.name, self.name, **fields)
        for _ in range(self.dice.randrange(4)):
            await self.publish(self.dice.randint(1, 4))
        await self.pull(self.dice.randrange(6))
        for ack_id in self.dice.sample(sorted(self.held), k=self.dice.randint(0, len(self.held))):
            await self.ack(ack_id)
        if len(self.published) < self.minimum:
            await self.publish(self.minimum)

    async def publish(self, count: int) -> None:
        """Publishes messages of one key, all of which match the filter of the subscription."""
        key = self.dice.choice(["", "a", "b"])
        several = [message("text", attributes={"taken": "yes"}) for _ in range(count)]
        several = [each | ({"orderingKey": key} if key else {}) for each in several]
        answer = await self.rest.call("POST", f"{self.topic}:publish", {"messages": several})
        if answer.status_code == 200:
            self.published |= {*answer.json()["messageIds"]}
        else:
            assert (answer.status_code, self.verb) == (404, "delete topic"), answer.text

    async def pull(self, count: int) -> None:
        if count:
            received = await self.rest.pull(self.name, count)
            self.held |= {each["ackId"]: each["message"]["messageId"] for each in received}

    async def ack(self, ack_id: str) -> None:
        answer = await self.rest.call("POST", f"{self.subscription}:acknowledge", {"ackIds": [ack_id]})
        if answer.status_code == 200:
            self.acked.add(self.held.pop(ack_id))

    def call(self) -> tuple[str, Json]:
        ids = sorted(self.published)
        return {
            "purge": (f"POST {self.subscription}:purge", {}),
            "seek": (f"POST {self.subscription}:seek", {"time": LATER}),
            "seek by plain path": (f"POST {self.subscription}/seek", {"time": LATER}),
            "discard": (f"POST {self.subscription}:discard", {"messageIds": ids}),
            "retract": (f"POST {self.topic}:retract", {"messageIds": ids}),
            "purge topic": (f"POST {self.topic}:purge", {}),
            "delete topic": (f"DELETE {self.topic}", {}),
            "delete": (f"DELETE {self.subscription}", {}),
            "detach": (f"POST {self.subscription}:detach", {}),
        }[self.verb]

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        acks = [self.ack(ack_id) for ack_id in self.dice.sample(sorted(self.held), k=min(len(self.held), 2))]
        return [*(self.publish(1) for _ in range(self.dice.randrange(3))), *acks]

    def count_of(self, preview: Json) -> int:
        count = super().count_of(preview)
        self.before, self.previewed = {*self.published}, count
        assert count == len(self.published - (set() if self.takes_acked else self.acked))
        return count

    async def affected(self, answer: Json | None) -> int:
        """Counts the messages that are neither acked nor in the backlog, which it drains.

        If the subscription was removed, nobody can drain it: the preview's count then stands, within the bounds
        that the acks and publishes set.
        """
        if self.verb == "delete topic":
            return len(self.published) if answer is not None else 0
        if answer is not None and self.is_removal:
            least, most = len(self.before - self.acked), len(self.published - self.acked)
            return min(max(self.previewed, least), most)  # later publishes may have come before it or after it
        for ack_id in self.held:
            body = {"ackIds": [ack_id], "ackDeadlineSeconds": 0}
            await self.rest.call("POST", f"{self.subscription}:modifyAckDeadline", body)
        drained = {each["message"]["messageId"] for each in await self.rest.drain(self.name)}
        lost = self.published - self.acked - drained
        if self.takes_acked and answer is not None:
            lost |= self.acked & self.before
        return len(lost)


def of_messages(verb: str, **attributes: object) -> type[OfMessages]:
    return type("OfMessages", (OfMessages,), {"verb": verb, **attributes})


# --- operations -------------------------------------------------------------------------------------------------


async def has_backlog(rest: Rest, name: str, count: int) -> None:
    """Returns once a subscription has so many messages that are not acknowledged."""

    async def is_reached() -> bool:
        return await rest.backlog(name) == count

    await eventually(is_reached)


class Operation(PreviewedCall):
    """A call that starts an operation, whose preview is the operation that would be started."""

    def count_of(self, preview: Json) -> int:
        assert preview["metadata"]["state"] == "VALIDATED"
        return int(preview["metadata"]["count"])

    async def ended(self, answer: Json | None) -> None:
        if answer is not None:
            ended = await self.rest.ok("POST", f"{answer['name']}:wait", {"timeout": "60s"})
            assert ended["done"], ended
            assert "error" not in ended, ended


class Copy(Operation):
    async def begin(self) -> None:
        await self.rest.create_topic(self.name, messageRetentionDuration="3600s")
        await self.rest.create_topic(f"{self.name}-target")
        await self.rest.create_subscription(self.name, f"{self.name}-target")
        await self.rest.publish(*"abc"[: self.dice.randint(1, 3)], topic=self.name)

    def call(self) -> tuple[str, Json]:
        return f"POST {self.rest.topic(self.name)}:copy", {"targetTopic": self.rest.topic(f"{self.name}-target")}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.rest.publish("later", topic=self.name) for _ in range(self.dice.randint(1, 3))]

    async def affected(self, answer: Json | None) -> int:
        await self.ended(answer)
        return len(await self.rest.drain(self.name))


class Redrive(Operation):
    async def begin(self) -> None:
        await self.rest.create_topic(self.name)
        await self.rest.create_topic(f"{self.name}-dead")
        await self.rest.create_subscription(f"{self.name}-dead", f"{self.name}-dead")
        policy = {"deadLetterTopic": self.rest.topic(f"{self.name}-dead"), "maxDeliveryAttempts": 5}
        await self.rest.create_subscription(self.name, self.name, deadLetterPolicy=policy)
        self.dead = await self.fail(self.dice.randint(1, 4))

    async def fail(self, count: int) -> set[str]:
        """Publishes messages, and rejects them until they are dead letters; returns their ids."""
        before = await self._dead_letters()
        ids = {*await self.rest.publish(*["text"] * count, topic=self.name)}
        received: list[Json] = []

        async def has_all() -> bool:
            received.extend(await self.rest.pull(self.name))
            return ids <= {each["message"]["messageId"] for each in received}

        await eventually(has_all)
        ack_ids = [each["ackId"] for each in received if each["message"]["messageId"] in ids]
        await self.rest.ok("POST", f"{self.rest.subscription(self.name)}:reject", {"ackIds": ack_ids})

        async def are_dead() -> bool:
            return await self._dead_letters() >= before + count

        await eventually(are_dead)
        return ids

    async def _dead_letters(self) -> int:
        return await self.rest.backlog(f"{self.name}-dead")

    def call(self) -> tuple[str, Json]:
        return f"POST {self.rest.subscription(self.name)}:redrive", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.rest.publish("healthy", topic=self.name)]

    async def affected(self, answer: Json | None) -> int:
        """Counts the dead letters that have come back: those that have left the dead-letter topic."""
        await self.ended(answer)
        back = {each["message"]["messageId"] for each in await self.rest.drain(self.name)}
        assert len(back & self.dead) == len(self.dead) - await self._dead_letters()
        return len(back & self.dead)


class Recovery(Operation):
    """Pushes that failed, to an endpoint that works now."""

    async def begin(self) -> None:
        self.pushes = Pushes(self.rest, self.sink)
        await self.rest.create_topic(self.name, messageRetentionDuration="3600s")
        await self.rest.create_topic(f"{self.name}-dead")
        await self.rest.create_subscription(f"{self.name}-dead", f"{self.name}-dead")
        policy = {"deadLetterTopic": self.rest.topic(f"{self.name}-dead"), "maxDeliveryAttempts": 1}
        await self.pushes.subscribe("/status/500", name=self.name, topic=self.name, deadLetterPolicy=policy)
        count = self.dice.randint(1, 4)
        await self.rest.publish(*["failed"] * count, topic=self.name)
        await has_backlog(self.rest, f"{self.name}-dead", count)
        self.healthy = 0
        self.mended = self.pushes.path()
        await self.pushes.push_to(self.mended, self.name)

    def call(self) -> tuple[str, Json]:
        return f"POST {self.rest.subscription(self.name)}:recover", {"startTime": EVER}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        self.healthy = self.dice.randint(1, 2)
        return [self.rest.publish("healthy", topic=self.name) for _ in range(self.healthy)]

    async def affected(self, answer: Json | None) -> int:
        """Counts the failed messages that arrive at the endpoint that works, before one that is published last."""
        await self.ended(answer)
        await self.rest.publish("last", topic=self.name)
        await self.pushes.until_taken(self.mended, "last", *["healthy"] * self.healthy)
        await has_backlog(self.rest, self.name, 0)
        return (await self.pushes.taken(self.mended)).count("failed")


class MissingReplay(Operation):
    """Messages that were published before the subscription existed; their count is an estimate."""

    limits = ("asOf",)

    async def begin(self) -> None:
        self.pushes = Pushes(self.rest, self.sink)
        await self.rest.create_topic(self.name, messageRetentionDuration="3600s")
        await self.rest.publish(*["missed"] * self.dice.randint(1, 4), topic=self.name)
        self.path = await self.pushes.subscribe(name=self.name, topic=self.name)

    def call(self) -> tuple[str, Json]:
        return f"POST {self.rest.subscription(self.name)}:replayMissing", {"startTime": EVER}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.rest.publish("healthy", topic=self.name)]

    async def affected(self, answer: Json | None) -> int:
        await self.ended(answer)
        await self.rest.publish("last", topic=self.name)
        await self.pushes.until_taken(self.path, "last")
        await has_backlog(self.rest, self.name, 0)
        return (await self.pushes.taken(self.path)).count("missed")


# --- resources that others refer to -----------------------------------------------------------------------------


class DeletedSchema(PreviewedCall):
    """A schema, while topics are created that have it."""

    async def begin(self) -> None:
        self.schema = f"{self.rest.project}/schemas/{self.name}"
        await self.rest.ok(
            "POST", f"{self.rest.project}/schemas?schemaId={self.name}", {"type": "JSON", "definition": "{}"}
        )
        self.topics = self.dice.randint(0, 2)
        for number in range(self.topics):
            await self.rest.ok("PUT", self.topic(number), self.settings)

    def topic(self, number: int) -> str:
        return self.rest.topic(f"{self.name}-{number}")

    @property
    def settings(self) -> Json:
        return {"schemaSettings": {"schema": self.schema, "encoding": "JSON"}}

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.schema}", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        created = [self.rest.call("PUT", self.topic(self.topics), self.settings)]
        message_ = {"messages": [message("{}")]}
        return created + [self.rest.call("POST", f"{self.topic(n)}:publish", message_) for n in range(self.topics)]

    async def affected(self, answer: Json | None) -> int:
        found = [await self.rest.call("GET", self.topic(number)) for number in range(self.topics + 1)]
        settings = [topic.json()["schemaSettings"] for topic in found if topic.status_code == 200]
        assert {each["schema"] for each in settings} <= (
            {"_deleted-schema_"} if answer is not None else {self.schema}
        )
        return sum(each["schema"] == "_deleted-schema_" for each in settings)


class DeletedRole(PreviewedCall):
    """A role, while API keys are created that have it."""

    async def begin(self) -> None:
        role = {"title": "Auditor", "includedPermissions": ["pubsub.topics.get"]}
        body = {"roleId": self.name.replace("-", "_"), "role": role}
        self.role = (await self.rest.ok("POST", f"{self.rest.project}/roles", body))["name"]
        for _ in range(self.dice.randint(0, 2)):
            await self.rest.ok("POST", f"{self.rest.project}/apiKeys", {"roles": [self.role]})

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.role}", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.rest.call("POST", f"{self.rest.project}/apiKeys", {"roles": [self.role]})]

    async def affected(self, answer: Json | None) -> int:
        assert (await self.rest.ok("GET", self.role)).get("deleted", False) == (answer is not None)
        if answer is None:
            return 0
        keys = (await self.rest.ok("GET", f"{self.rest.project}/apiKeys", params={"pageSize": 300})).get("keys", [])
        return sum(self.role in key["roles"] for key in keys)


class DeletedAccount(PreviewedCall):
    """A service account, while it gets keys, roles and subscriptions whose pushes carry its tokens."""

    async def begin(self) -> None:
        body = {"accountId": self.name}
        made = await self.rest.ok("POST", f"{self.rest.project}/serviceAccounts", body)
        self.account, self.email = made["name"], made["email"]
        self.references = self.numbers = 0
        await self.rest.create_topic(self.name)
        for refer in self.dice.sample(self.ways(), k=self.dice.randint(0, 2)):
            await refer()

    def ways(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.create_key, self.grant, self.push]

    async def create_key(self) -> None:
        await self._refer("POST", f"{self.account}/keys", {})

    async def grant(self) -> None:
        self.numbers += 1
        topic = self.rest.topic(f"{self.name}-{self.numbers}")
        await self.rest.ok("PUT", topic, {})
        bindings = [{"role": "roles/pubsub.viewer", "members": [f"serviceAccount:{self.email}"]}]
        await self._refer("POST", f"{topic}:setIamPolicy", {"policy": {"bindings": bindings}})

    async def push(self) -> None:
        self.numbers += 1
        config = {"pushEndpoint": self.sink.url, "oidcToken": {"serviceAccountEmail": self.email}}
        body = {"topic": self.rest.topic(self.name), "pushConfig": config}
        await self._refer("PUT", self.rest.subscription(f"{self.name}-{self.numbers}"), body)

    async def _refer(self, method: str, path: str, body: Json) -> None:
        answer = await self.rest.call(method, path, body)
        assert answer.status_code in (200, 400, 404), answer.text
        self.references += answer.status_code == 200

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.account}", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.dice.choice(self.ways())(), self.rest.publish("text", topic=self.name)]

    async def affected(self, answer: Json | None) -> int:
        """Counts all references; a reference cannot be made once the account is deleted."""
        if answer is not None:
            return self.references
        preview = await self.rest.ok("DELETE", self.account, params={"validateOnly": "true"})
        assert preview["referenceCount"] == self.references
        return 0


class Reset(PreviewedCall):
    """A project, while topics are created in it."""

    async def begin(self) -> None:
        self.project = Rest(self.rest.client, f"{self.rest.project}-{self.name}")
        self.made = 0
        for _ in range(self.dice.randint(1, 4)):
            await self.create()

    async def create(self) -> None:
        self.made += 1
        await self.project.create_topic(f"topic-{self.made}")

    async def publish(self) -> None:
        body = {"messages": [message("text")]}
        assert (await self.project.call("POST", f"{self.project.topic('topic-1')}:publish", body)).status_code in (
            200,
            404,
        )

    def call(self) -> tuple[str, Json]:
        return f"POST {self.project.project}:reset", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.create() for _ in range(self.dice.randint(0, 2))] + [self.publish()]

    async def affected(self, answer: Json | None) -> int:
        left = (await self.rest.ok("GET", f"{self.project.project}/topics")).get("topics", [])
        return self.made - len(left)


# --- resources that nothing refers to ---------------------------------------------------------------------------


class Named(PreviewedCall):
    """A resource that somebody else removes at the same time, and creates again by the same name."""

    collection = ""
    refusals = (404,)

    async def begin(self) -> None:
        await self.rest.create_topic(self.name)
        await self.rest.create_subscription(self.name, self.name)
        self.path = f"{self.rest.project}/{self.collection}/{self.name}"
        self.by_others: list[int] = []
        await self.rest.ok("PUT", self.path, self.wanted())

    def wanted(self) -> Json:
        topic = self.rest.topic(self.name)
        return {
            "snapshots": {"subscription": self.rest.subscription(self.name)},
            "schedules": {"topic": topic, "interval": "3600s", "message": {"data": "eA=="}},
            "maskingRules": {"attributes": ["token"]},
            "savedViews": {"page": "topics"},
            "messageTemplates": {"topic": topic, "data": "eA=="},
            "linkTemplates": {"title": "Trace", "url": "https://traces.example.com/{traceId}"},
        }[self.collection]

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.path}", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.replace(), self.rest.publish("text", topic=self.name)]

    async def replace(self) -> None:
        self.by_others = [(await self.rest.call("DELETE", self.path)).status_code]
        self.by_others.append((await self.rest.call("PUT", self.path, self.wanted())).status_code)

    async def affected(self, answer: Json | None) -> int:
        """The first is removed by one of the two, and the second by nobody."""
        if self.by_others:
            assert self.by_others == [200 if answer is None else 404, 200], answer
            await self.rest.ok("GET", self.path)
        return 0


def named(collection: str) -> type[Named]:
    return type("Named", (Named,), {"collection": collection})


class Numbered(PreviewedCall):
    """A resource whose name the broker chooses, and that somebody else removes at the same time."""

    refusals = (400, 404)
    count = 0

    async def begin(self) -> None:
        await self.rest.create_topic(self.name, extensions={"delay": True})
        await self.rest.create_subscription(self.name, self.name)
        self.by_others: list[int] = []
        self.path = await self.create()

    @abstractmethod
    async def create(self) -> str:
        """Returns its path."""

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.path}", {}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.delete(), self.rest.publish("text", topic=self.name)]

    async def delete(self) -> None:
        self.by_others = [(await self.rest.call("DELETE", self.path)).status_code]

    async def affected(self, answer: Json | None) -> int:
        """It is removed by one of the two."""
        if self.by_others:
            assert (self.by_others == [200]) == (answer is None), (self.by_others, answer)
        assert (await self.rest.call("DELETE", self.call()[0].split()[1])).status_code in self.refusals
        return self.count if answer is not None else 0


class DeletedRevision(Numbered):
    async def create(self) -> str:
        schema = f"{self.rest.project}/schemas/{self.name}"
        first = {"type": "AVRO", "definition": AVRO % ""}
        await self.rest.ok("POST", f"{self.rest.project}/schemas?schemaId={self.name}", first)
        more = ', {"name": "m", "type": "int", "default": 0}'
        body = {"schema": {"name": schema, "type": "AVRO", "definition": AVRO % more}}
        revision = (await self.rest.ok("POST", f"{schema}:commit", body))["revisionId"]
        return f"{schema}@{revision}"

    def call(self) -> tuple[str, Json]:
        return f"DELETE {self.path}:deleteRevision", {}

    async def delete(self) -> None:
        self.by_others = [(await self.rest.call("DELETE", f"{self.path}:deleteRevision")).status_code]


class DeletedKey(Numbered):
    async def create(self) -> str:
        account = await self.rest.ok("POST", f"{self.rest.project}/serviceAccounts", {"accountId": self.name})
        return str((await self.rest.ok("POST", f"{account['name']}/keys", {}))["name"])


class DeletedApiKey(Numbered):
    async def create(self) -> str:
        body = {"roles": ["roles/pubsub.viewer"]}
        return str((await self.rest.ok("POST", f"{self.rest.project}/apiKeys", body))["name"])


class DeletedShareLink(Numbered):
    async def create(self) -> str:
        push = {"topic": self.rest.topic(self.name), "pushConfig": {"pushEndpoint": self.sink.url}}
        hook = f"{self.rest.subscription(self.name)}-hook"
        await self.rest.ok("PUT", hook, push)
        return str((await self.rest.ok("POST", f"{hook}:createShareLink", {"ttl": "3600s"}))["name"])


class DeletedOperation(Numbered):
    async def create(self) -> str:
        purge = f"{self.rest.subscription(self.name)}:purge"
        name = str((await self.rest.ok("POST", purge, {"filter": "attributes:a"}))["name"])
        await self.rest.ok("POST", f"{name}:wait", {"timeout": "60s"})
        return name


class CancelledMessage(Numbered):
    count = 1

    async def create(self) -> str:
        late = message("late", attributes={"broker-delay": "3600s"})
        [scheduled] = await self.rest.publish(late, topic=self.name)
        return f"{self.rest.topic(self.name)}/scheduled/{scheduled}"


class ChangedFilter(PreviewedCall):
    """The filter of a subscription.  Nothing is lost, and the call takes no limits.  It says the same as its
    preview, which also compares both filters by the messages that the topic retains.
    """

    limits = ()
    earlier, later = 'attributes.env = "a"', "attributes:env"

    async def begin(self) -> None:
        await self.rest.create_topic(self.name, messageRetentionDuration="600s")
        await self.rest.create_subscription(self.name, self.name, filter=self.earlier)
        self.environments: dict[str, str] = {}  # by message id
        for env in ("a", "b"):
            await self.publish(env, self.dice.randint(0, 3))

    async def publish(self, env: str, count: int) -> None:
        if count:
            ids = await self.rest.publish(*[message("text", {"env": env})] * count, topic=self.name)
            self.environments |= dict.fromkeys(ids, env)

    def call(self) -> tuple[str, Json]:
        return f"POST {self.rest.subscription(self.name)}:setFilter", {"filter": self.later}

    def meanwhile(self) -> Iterable[Awaitable[object]]:
        return [self.publish(env, self.dice.randint(1, 2)) for env in "ab"]

    def count_of(self, preview: Json) -> int:
        envs = [*self.environments.values()]
        assert preview["preview"] == {
            "scannedMessageCount": len(envs),
            "previouslyMatchedMessageCount": envs.count("a"),
            "matchedMessageCount": len(envs),
            "newlyMatchedMessageCount": envs.count("b"),
            "noLongerMatchedMessageCount": 0,
        }
        self.previewed = {name: preview[name] for name in ("filter", "previousFilter", "changed")}
        return 0

    async def affected(self, answer: Json | None) -> int:
        """Finds out by the messages that come from when on the filter holds."""
        assert answer is not None
        assert self.previewed.items() <= answer.items()
        path = f"{self.rest.topic(self.name)}/messages"
        listed = (await self.rest.ok("GET", path)).get("messages", [])
        since = parse_timestamp(answer["effectiveTime"], "effectiveTime")
        expected = {
            each["messageId"]
            for each in listed
            if each["attributes"]["env"] == "a" or parse_timestamp(each["publishTime"], "publishTime") >= since
        }
        drained = {each["message"]["messageId"] for each in await self.rest.drain(self.name)}
        assert len(listed) == len(self.environments)
        assert drained == expected
        return 0


CALLS: Mapping[str, type[PreviewedCall]] = {
    "CancelScheduled": CancelledMessage,
    "CopyTopic": Copy,
    "DeleteApiKey": DeletedApiKey,
    "DeleteLinkTemplate": named("linkTemplates"),
    "DeleteMaskingRule": named("maskingRules"),
    "DeleteMessageTemplate": named("messageTemplates"),
    "DeleteOperation": DeletedOperation,
    "DeleteRole": DeletedRole,
    "DeleteSavedView": named("savedViews"),
    "DeleteSchedule": named("schedules"),
    "DeleteSchema": DeletedSchema,
    "DeleteSchemaRevision": DeletedRevision,
    "DeleteServiceAccount": DeletedAccount,
    "DeleteServiceAccountKey": DeletedKey,
    "DeleteShareLink": DeletedShareLink,
    "DeleteSnapshot": named("snapshots"),
    "DeleteSubscription": of_messages("delete", is_removal=True),
    "DeleteTopic": of_messages("delete topic", takes_acked=True, is_removal=True),
    "DetachSubscription": of_messages("detach", is_removal=True),
    "Discard": of_messages("discard", minimum=2),
    "PurgeSubscription": of_messages("purge"),
    "PurgeTopic": of_messages("purge topic", takes_acked=True),
    "RecoverPushes": Recovery,
    "Redrive": Redrive,
    "ReplayMissingPushes": MissingReplay,
    "ResetProject": Reset,
    "RetractMessages": of_messages("retract", takes_acked=True, minimum=2),
    "Seek": of_messages("seek"),
    "SeekByPlainPath": of_messages("seek by plain path"),
    "SetFilter": ChangedFilter,
}
