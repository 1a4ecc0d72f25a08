"""The REST surface: one row per RPC, in the order of Google's discovery document.

A path is written with `*` for each resource id.  `:verb` on the last id is Google's spelling; `/verb` is the
plain spelling of the same call (A12) and stands in a row of its own.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.front.not_served import not_served
from broker.front.rest.call import Call
from broker.front.rest.handlers import acknowledge, filters, positions, publish, pull, pushes
from broker.front.rest.resources import WHOLE, resource_handler

Handler = Callable[[Call], Awaitable[bytes]]

TOPIC = "projects/*/topics/*"
SUBSCRIPTION = "projects/*/subscriptions/*"
SNAPSHOT = "projects/*/snapshots/*"
SCHEMA = "projects/*/schemas/*"


class Route(NamedTuple):
    """`rpc` is the name in Google's service definition; several routes may serve one RPC."""

    method: str
    path: str
    rpc: str
    handler: Handler


def _refused(method: str, path: str, rpc: str) -> Route:
    """A part of Google's API that is not served; api_spec/support.toml says why."""

    async def refuse(call: Call) -> bytes:
        raise not_served(rpc)

    return Route(method, path, rpc, refuse)


def _resource(method: str, path: str, rpc: str, name: str, body: str | None = None) -> Route:
    """A method about resources; see resource_handler."""
    return Route(method, path, rpc, resource_handler(rpc, name, body))


ROUTES = [
    _resource("PUT", TOPIC, "Publisher.CreateTopic", "name", WHOLE),
    _resource("PATCH", TOPIC, "Publisher.UpdateTopic", "topic.name", WHOLE),
    Route("POST", f"{TOPIC}:publish", "Publisher.Publish", publish.publish),
    Route("POST", f"{TOPIC}/publish", "Publisher.Publish", publish.publish),
    _resource("GET", TOPIC, "Publisher.GetTopic", "topic"),
    _resource("GET", "projects/*/topics", "Publisher.ListTopics", "project"),
    _resource("GET", f"{TOPIC}/subscriptions", "Publisher.ListTopicSubscriptions", "topic"),
    _resource("GET", f"{TOPIC}/snapshots", "Publisher.ListTopicSnapshots", "topic"),
    _resource("DELETE", TOPIC, "Publisher.DeleteTopic", "topic"),
    _resource("POST", f"{SUBSCRIPTION}:detach", "Publisher.DetachSubscription", "subscription"),
    _resource("PUT", SUBSCRIPTION, "Subscriber.CreateSubscription", "name", WHOLE),
    _resource("GET", SUBSCRIPTION, "Subscriber.GetSubscription", "subscription"),
    _resource("PATCH", SUBSCRIPTION, "Subscriber.UpdateSubscription", "subscription.name", WHOLE),
    _resource("GET", "projects/*/subscriptions", "Subscriber.ListSubscriptions", "project"),
    _resource("DELETE", SUBSCRIPTION, "Subscriber.DeleteSubscription", "subscription"),
    Route(
        "POST",
        f"{SUBSCRIPTION}:modifyAckDeadline",
        "Subscriber.ModifyAckDeadline",
        acknowledge.modify_ack_deadline,
    ),
    Route(
        "POST",
        f"{SUBSCRIPTION}/modifyAckDeadline",
        "Subscriber.ModifyAckDeadline",
        acknowledge.modify_ack_deadline,
    ),
    Route("POST", f"{SUBSCRIPTION}:nack", "Nack", acknowledge.nack),  # extensions (A4, A5)
    Route("POST", f"{SUBSCRIPTION}:reject", "Reject", acknowledge.reject),
    Route("POST", f"{SUBSCRIPTION}:acknowledge", "Subscriber.Acknowledge", acknowledge.acknowledge),
    Route("POST", f"{SUBSCRIPTION}/acknowledge", "Subscriber.Acknowledge", acknowledge.acknowledge),
    Route("POST", f"{SUBSCRIPTION}:pull", "Subscriber.Pull", pull.pull),
    Route("POST", f"{SUBSCRIPTION}/pull", "Subscriber.Pull", pull.pull),
    _resource("POST", f"{SUBSCRIPTION}:modifyPushConfig", "Subscriber.ModifyPushConfig", "subscription", WHOLE),
    Route("GET", f"{SUBSCRIPTION}:pushStatus", "GetPushStatus", pushes.get_push_status),  # extensions (A8, C6)
    Route("GET", f"{SUBSCRIPTION}:pushFailures", "ListPushFailures", pushes.list_push_failures),
    Route("POST", f"{SUBSCRIPTION}:pausePush", "PausePush", pushes.pause_push),
    Route("POST", f"{SUBSCRIPTION}:resumePush", "ResumePush", pushes.resume_push),
    _resource("GET", SNAPSHOT, "Subscriber.GetSnapshot", "snapshot"),
    _resource("GET", "projects/*/snapshots", "Subscriber.ListSnapshots", "project"),
    _resource("PUT", SNAPSHOT, "Subscriber.CreateSnapshot", "name", WHOLE),
    _resource("PATCH", SNAPSHOT, "Subscriber.UpdateSnapshot", "snapshot.name", WHOLE),
    _resource("DELETE", SNAPSHOT, "Subscriber.DeleteSnapshot", "snapshot"),
    _resource("POST", f"{SUBSCRIPTION}:seek", "Subscriber.Seek", "subscription", WHOLE),
    _resource("POST", f"{SUBSCRIPTION}/seek", "Subscriber.Seek", "subscription", WHOLE),
    Route("GET", f"{SUBSCRIPTION}/snapshot", "GetPosition", positions.get_position),  # an extension (A12)
    Route("POST", f"{TOPIC}:testFilter", "TestFilter", filters.test_filter),  # extensions (A3)
    Route("POST", f"{SUBSCRIPTION}:testFilter", "TestFilter", filters.test_filter_of_subscription),
    # Not served yet.
    _refused("POST", "projects/*/schemas", "SchemaService.CreateSchema"),
    _refused("GET", SCHEMA, "SchemaService.GetSchema"),
    _refused("GET", "projects/*/schemas", "SchemaService.ListSchemas"),
    _refused("DELETE", SCHEMA, "SchemaService.DeleteSchema"),
    _refused("GET", f"{SCHEMA}:listRevisions", "SchemaService.ListSchemaRevisions"),
    _refused("POST", f"{SCHEMA}:commit", "SchemaService.CommitSchema"),
    _refused("POST", f"{SCHEMA}:rollback", "SchemaService.RollbackSchema"),
    _refused("DELETE", f"{SCHEMA}:deleteRevision", "SchemaService.DeleteSchemaRevision"),
    _refused("POST", "projects/*/schemas:validate", "SchemaService.ValidateSchema"),
    _refused("POST", "projects/*/schemas:validateMessage", "SchemaService.ValidateMessage"),
    *(
        _refused(method, f"{resource}:{verb}", f"IAMPolicy.{verb[0].upper()}{verb[1:]}")
        for resource in (TOPIC, SUBSCRIPTION, SNAPSHOT, SCHEMA)
        for method, verb in (("GET", "getIamPolicy"), ("POST", "setIamPolicy"), ("POST", "testIamPermissions"))
    ),
]
