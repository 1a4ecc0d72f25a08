"""The requests of Terraform's provider for Google Cloud (`pubsub_custom_endpoint`), in its order and its shapes.

The provider is no package that tests could install, so these are its requests, not itself: each call has
`alt=json`, fields that the configuration leaves out are null, and after each change it reads the resource and
compares.  What it reads must be what it wrote: else every plan shows a difference.
"""

from typing import Any

from tests.fixtures.broker import Json, Rest

_JSON = "alt=json"


class Terraform:
    """`apply` and `destroy` as the provider does them, resource by resource."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self.project = rest.project

    async def call(self, method: str, path: str, body: Any = None) -> Json:
        both = "&" if "?" in path else "?"
        headers = {"User-Agent": "Terraform/1.9.0 terraform-provider-google/6.0.0"}
        return await self._rest.ok(method, f"{path}{both}{_JSON}", body, headers=headers)

    async def create(self, path: str, fields: Json) -> Json:
        """PUT, then it is polled for until it is there, then read; returns what was read."""
        await self.call("PUT", path, fields)
        polled = await self.call("GET", path)
        assert await self.call("GET", path) == polled
        return polled

    async def update(self, path: str, kind: str, fields: Json, *changed: str) -> Json:
        """PATCH with the mask of what has changed, beside all fields that the configuration has."""
        await self.call("PATCH", f"{path}?updateMask={'%2C'.join(changed)}", {kind: fields})
        return await self.call("GET", path)


async def test_a_topic_is_made_changed_planned_without_a_difference_and_destroyed(rest: Rest) -> None:
    terraform, path = Terraform(rest), rest.topic()
    fields: Json = {
        "labels": {"team": "shop", "goog-terraform-provisioned": "true"},
        "messageRetentionDuration": "86600s",
    }
    assert await terraform.create(path, fields) == {"name": path, **fields}
    fields["labels"] = {"team": "billing", "goog-terraform-provisioned": "true"}
    assert await terraform.update(path, "topic", fields, "labels") == {"name": path, **fields}
    del fields["messageRetentionDuration"]
    without = await terraform.update(path, "topic", fields, "labels", "messageRetentionDuration")
    assert without == {"name": path, **fields}
    await terraform.call("DELETE", path)
    assert (await rest.error("GET", f"{path}?{_JSON}"))[0] == "NOT_FOUND"


async def test_a_subscription_with_nothing_set_is_read_as_the_provider_expects(rest: Rest) -> None:
    """Its defaults are computed: what the server says is what the state has.  Nulls are what is not there."""
    await rest.create_topic()
    path = rest.subscription()
    nothing: Json = dict.fromkeys(("expirationPolicy", "deadLetterPolicy", "retryPolicy"))
    fields = {"name": path, "topic": rest.topic(), "ackDeadlineSeconds": 10, "messageRetentionDuration": "604800s"}
    found = await Terraform(rest).create(path, {**fields, **nothing})
    assert {**found, **fields} == found
    assert found["expirationPolicy"] == {"ttl": "2678400s"}
    assert not {"deadLetterPolicy", "retryPolicy"} & {*found}


async def test_a_subscription_with_everything_is_made_changed_and_planned_without_a_difference(rest: Rest) -> None:
    terraform, path = Terraform(rest), rest.subscription()
    await rest.create_topic()
    await rest.create_topic("dead")
    fields: Json = {
        "name": path,
        "topic": rest.topic(),
        "labels": {"foo": "bar"},
        "ackDeadlineSeconds": 20,
        "messageRetentionDuration": "1200s",
        "retainAckedMessages": True,
        "expirationPolicy": {"ttl": "300000s"},
        "filter": 'attributes.domain = "com"',
        "deadLetterPolicy": {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 10},
        "retryPolicy": {"minimumBackoff": "10s", "maximumBackoff": "600s"},
        "enableMessageOrdering": True,
        "enableExactlyOnceDelivery": True,
    }
    found = await terraform.create(path, fields)
    assert {**found, **fields} == found
    fields |= {"ackDeadlineSeconds": 30, "expirationPolicy": {}, "deadLetterPolicy": None, "retryPolicy": None}
    sent = {name: value for name, value in fields.items() if name not in ("name", "topic", "filter")}
    changed = ("ackDeadlineSeconds", "expirationPolicy", "deadLetterPolicy", "retryPolicy")
    found = await terraform.update(path, "subscription", sent, *changed)
    kept = {name: value for name, value in fields.items() if name not in ("deadLetterPolicy", "retryPolicy")}
    assert {**found, **kept} == found
    assert not {"deadLetterPolicy", "retryPolicy"} & {*found}


async def test_a_push_endpoint_comes_and_goes(rest: Rest) -> None:
    terraform, path = Terraform(rest), rest.subscription()
    await rest.create_topic()
    push: Json = {"pushEndpoint": "https://example.com/push", "attributes": {"x-goog-version": "v1"}}
    nothing: Json = dict.fromkeys(("expirationPolicy", "deadLetterPolicy", "retryPolicy"))
    found = await terraform.create(path, {"name": path, "topic": rest.topic(), "pushConfig": push, **nothing})
    assert found["pushConfig"] == push
    push["pushEndpoint"] = "https://example.com/other"
    found = await terraform.update(path, "subscription", {"pushConfig": push, **nothing}, "pushConfig")
    assert found["pushConfig"] == push
    found = await terraform.update(path, "subscription", nothing, "pushConfig")
    assert found.get("pushConfig", {}) == {}


async def test_a_schema_is_made_used_by_a_topic_revised_and_destroyed(rest: Rest) -> None:
    terraform = Terraform(rest)
    path = f"{rest.project}/schemas/example"
    definition = '{"type": "record", "name": "Avro", "fields": [{"name": "a", "type": "string"}]}'
    made = {"type": "AVRO", "definition": definition, "name": "example"}
    await terraform.call("POST", f"{rest.project}/schemas?schemaId=example", made)
    found = await terraform.call("GET", path)
    assert (found["name"], found["type"], found["definition"]) == (path, "AVRO", definition)
    settings = {"schemaSettings": {"schema": path, "encoding": "JSON"}}
    assert await terraform.create(rest.topic(), settings) == {"name": rest.topic(), **settings}
    wider = definition.replace("]}", ', {"name": "b", "type": ["null", "string"], "default": null}]}')
    await terraform.call(
        "POST", f"{path}:commit", {"name": path, "schema": {**made, "name": path, "definition": wider}}
    )
    assert (await terraform.call("GET", path))["definition"] == wider
    await terraform.call("DELETE", rest.topic())
    await terraform.call("DELETE", path)
    assert (await rest.error("GET", f"{path}?{_JSON}"))[0] == "NOT_FOUND"
