"""The methods about resources: one row for both doors, named as in Google's service definitions."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.front.resources import policies, schemas, snapshots, subscriptions, topics
from broker.front.resources.call import Handler

TOPIC = "projects/*/topics/*"  # `*` for each id
SUBSCRIPTION = "projects/*/subscriptions/*"
SNAPSHOT = "projects/*/snapshots/*"
SCHEMAS, SCHEMA = "projects/*/schemas", "projects/*/schemas/*"
PROJECT = "projects/*"
SERVICE_ACCOUNT = "projects/*/serviceAccounts/*"

WHOLE = "*"


class Rpc(NamedTuple):
    """A method, its handler, and how REST makes the request (as google/api/http.proto has it).

    `target` is the path within the request to what the call's path names ("topic.name").  `body` is the field that
    the JSON is, or WHOLE: the request itself; None: there is no body, and one that is sent is not looked at.  What
    neither has may be in the query.
    """

    name: str
    handler: Handler
    method: str
    path: str
    target: str
    body: str | None = None


def _policy_rpcs() -> Iterator[Rpc]:
    """On every resource that has a policy; IAM and Resource Manager read theirs by POST."""
    for path in (TOPIC, SUBSCRIPTION, SNAPSHOT, SCHEMA, PROJECT, SERVICE_ACCOUNT):
        by_get = path not in (PROJECT, SERVICE_ACCOUNT)
        get = ("GET", None) if by_get else ("POST", WHOLE)
        yield Rpc(
            "IAMPolicy.GetIamPolicy", policies.get_iam_policy, get[0], f"{path}:getIamPolicy", "resource", get[1]
        )
        yield Rpc(
            "IAMPolicy.SetIamPolicy", policies.set_iam_policy, "POST", f"{path}:setIamPolicy", "resource", WHOLE
        )
        yield Rpc(
            "IAMPolicy.TestIamPermissions",
            policies.test_iam_permissions,
            "POST",
            f"{path}:testIamPermissions",
            "resource",
            WHOLE,
        )


RPCS = [
    Rpc("Publisher.CreateTopic", topics.create_topic, "PUT", TOPIC, "name", WHOLE),
    Rpc("Publisher.UpdateTopic", topics.update_topic, "PATCH", TOPIC, "topic.name", WHOLE),
    Rpc("Publisher.GetTopic", topics.get_topic, "GET", TOPIC, "topic"),
    Rpc("Publisher.ListTopics", topics.list_topics, "GET", "projects/*/topics", "project"),
    Rpc(
        "Publisher.ListTopicSubscriptions",
        topics.list_topic_subscriptions,
        "GET",
        f"{TOPIC}/subscriptions",
        "topic",
    ),
    Rpc("Publisher.ListTopicSnapshots", topics.list_topic_snapshots, "GET", f"{TOPIC}/snapshots", "topic"),
    Rpc("Publisher.DeleteTopic", topics.delete_topic, "DELETE", TOPIC, "topic"),
    Rpc(
        "Publisher.DetachSubscription",
        subscriptions.detach_subscription,
        "POST",
        f"{SUBSCRIPTION}:detach",
        "subscription",
    ),
    Rpc("Subscriber.CreateSubscription", subscriptions.create_subscription, "PUT", SUBSCRIPTION, "name", WHOLE),
    Rpc("Subscriber.GetSubscription", subscriptions.get_subscription, "GET", SUBSCRIPTION, "subscription"),
    Rpc(
        "Subscriber.UpdateSubscription",
        subscriptions.update_subscription,
        "PATCH",
        SUBSCRIPTION,
        "subscription.name",
        WHOLE,
    ),
    Rpc(
        "Subscriber.ListSubscriptions",
        subscriptions.list_subscriptions,
        "GET",
        "projects/*/subscriptions",
        "project",
    ),
    Rpc("Subscriber.DeleteSubscription", subscriptions.delete_subscription, "DELETE", SUBSCRIPTION, "subscription"),
    Rpc(
        "Subscriber.ModifyPushConfig",
        subscriptions.modify_push_config,
        "POST",
        f"{SUBSCRIPTION}:modifyPushConfig",
        "subscription",
        WHOLE,
    ),
    Rpc("Subscriber.GetSnapshot", snapshots.get_snapshot, "GET", SNAPSHOT, "snapshot"),
    Rpc("Subscriber.ListSnapshots", snapshots.list_snapshots, "GET", "projects/*/snapshots", "project"),
    Rpc("Subscriber.CreateSnapshot", snapshots.create_snapshot, "PUT", SNAPSHOT, "name", WHOLE),
    Rpc("Subscriber.UpdateSnapshot", snapshots.update_snapshot, "PATCH", SNAPSHOT, "snapshot.name", WHOLE),
    Rpc("Subscriber.DeleteSnapshot", snapshots.delete_snapshot, "DELETE", SNAPSHOT, "snapshot"),
    Rpc("Subscriber.Seek", snapshots.seek, "POST", f"{SUBSCRIPTION}:seek", "subscription", WHOLE),
    Rpc("Subscriber.Seek", snapshots.seek, "POST", f"{SUBSCRIPTION}/seek", "subscription", WHOLE),
    Rpc("SchemaService.CreateSchema", schemas.create_schema, "POST", SCHEMAS, "parent", "schema"),
    Rpc("SchemaService.GetSchema", schemas.get_schema, "GET", SCHEMA, "name"),
    Rpc("SchemaService.ListSchemas", schemas.list_schemas, "GET", SCHEMAS, "parent"),
    Rpc(
        "SchemaService.ListSchemaRevisions", schemas.list_schema_revisions, "GET", f"{SCHEMA}:listRevisions", "name"
    ),
    Rpc("SchemaService.CommitSchema", schemas.commit_schema, "POST", f"{SCHEMA}:commit", "name", WHOLE),
    Rpc("SchemaService.RollbackSchema", schemas.rollback_schema, "POST", f"{SCHEMA}:rollback", "name", WHOLE),
    Rpc(
        "SchemaService.DeleteSchemaRevision",
        schemas.delete_schema_revision,
        "DELETE",
        f"{SCHEMA}:deleteRevision",
        "name",
    ),
    Rpc("SchemaService.DeleteSchema", schemas.delete_schema, "DELETE", SCHEMA, "name"),
    Rpc("SchemaService.ValidateSchema", schemas.validate_schema, "POST", f"{SCHEMAS}:validate", "parent", WHOLE),
    Rpc(
        "SchemaService.ValidateMessage",
        schemas.validate_message,
        "POST",
        f"{SCHEMAS}:validateMessage",
        "parent",
        WHOLE,
    ),
    *_policy_rpcs(),
]
