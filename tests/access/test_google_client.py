"""Google's client reads and changes policies over gRPC, where callers must show who they are."""

import asyncio
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import Aborted, PermissionDenied, Unauthenticated
from google.iam.v1 import policy_pb2
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.fixtures.access import Guarded

TOPIC, SUBSCRIPTION = "projects/guarded/topics/orders", "projects/guarded/subscriptions/billing"


def _change_and_try(client: Any, resource: str, permission: str, shown: list[tuple[str, str]]) -> None:
    """As its users do: read, add to it, write it with its etag, read again, try a permission."""
    policy = client.get_iam_policy(request={"resource": resource}, metadata=shown)
    stale = policy_pb2.Policy(etag=policy.etag)
    policy.bindings.add(role="roles/pubsub.viewer", members=["domain:example.com"])
    policy.bindings.add(role="roles/editor", members=["group:logs@example.com"])
    written = client.set_iam_policy(request={"resource": resource, "policy": policy}, metadata=shown)
    assert {binding.role: list(binding.members) for binding in written.bindings} == {
        "roles/pubsub.viewer": ["domain:example.com"],
        "roles/editor": ["group:logs@example.com"],
    }
    assert client.get_iam_policy(request={"resource": resource}, metadata=shown) == written
    with pytest.raises(Aborted):
        client.set_iam_policy(request={"resource": resource, "policy": stale}, metadata=shown)
    asked = {"resource": resource, "permissions": [permission]}
    assert list(client.test_iam_permissions(request=asked, metadata=shown).permissions) == [permission]


def _refusals(client: Any, resource: str, shown: list[tuple[str, str]]) -> None:
    with pytest.raises(PermissionDenied) as denied:
        client.get_iam_policy(request={"resource": resource}, metadata=shown)
    assert (denied.value.reason, denied.value.domain) == ("IAM_PERMISSION_DENIED", "iam.googleapis.com")
    assert denied.value.metadata["resource"] == resource
    with pytest.raises(Unauthenticated) as missing:
        client.get_iam_policy(request={"resource": resource})
    assert missing.value.reason == "CREDENTIALS_MISSING"


async def test_policies_are_read_and_changed_by_who_may_and_others_are_told_why_not(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC})
    nobody = await broker.key(await broker.account(role=""))
    admin, stranger = (
        [("authorization", value) for value in broker.bearer(key).values()] for key in (None, nobody)
    )
    with grpc.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        for client, resource, permission in (
            (publisher, TOPIC, "pubsub.topics.publish"),
            (subscriber, SUBSCRIPTION, "pubsub.subscriptions.consume"),
        ):
            await asyncio.to_thread(_change_and_try, client, resource, permission, admin)
            await asyncio.to_thread(_refusals, client, resource, stranger)
