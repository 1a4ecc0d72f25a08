"""All calls of the broker: one row per call.

A row has all that is decided about a call: its name, what it needs, how it is scheduled, how large its request may
be, how it is recorded, which operation it starts, and its paths and handlers over REST and gRPC.  The doors, the
gate, the limits, the audit log and the specification (openapi.py) take what they need from here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.api.generated.messages import full_name
from broker.api.google.call import Handler
from broker.api.grpc import health_service as health
from broker.api.grpc import reflection
from broker.api.grpc.methods import Grpc, Method
from broker.api.permissions import (
    ACT_AS,
    ATTACH,
    CONSUME,
    GET_SUBSCRIPTION,
    GET_TOPIC,
    LIST_SUBSCRIPTIONS,
    NOTHING,
    PUBLISH,
    SEEK,
    Need,
    Needs,
    On,
    policy_permissions,
)
from broker.api.rest.routes import Rest, Route
from broker.api.rpc import Audit, Kind, Rpc, Size
from broker.core.acking import grpc as grpc_acknowledge
from broker.core.acking import rest as acknowledge
from broker.core.backlog.seeking import position_rest as positions
from broker.core.backlog.seeking import seek_rest as seeks
from broker.core.backlog.seeking import snapshot_calls as snapshots
from broker.core.calls.grpc import resource_handler as grpc_handler
from broker.core.calls.rest import WHOLE, query_parameters
from broker.core.calls.rest import resource_handler as rest_handler
from broker.core.publishing import grpc as grpc_publish
from broker.core.publishing import rest as publish
from broker.core.pulling import pull_grpc as grpc_pull
from broker.core.pulling import pull_rest as pull
from broker.core.pulling.stream_grpc import streaming_pull
from broker.core.resources import freeze_rest as freezes
from broker.core.resources import pause_rest as pauses
from broker.core.resources import subscription_calls as subscriptions
from broker.core.resources import topic_calls as topics
from broker.features.audit import rest as audit_logs
from broker.features.dead_letters import rest as dead_letters
from broker.features.dead_letters.discarding import rest as discards
from broker.features.dead_letters.editing import rest as edits
from broker.features.dead_letters.recovery import rest as push_replays
from broker.features.dead_letters.redriving import rest as redrives
from broker.features.delayed import rest as schedule
from broker.features.events import rest as settings
from broker.features.filters import change_rest as filter_changes
from broker.features.filters import trial_rest as filters
from broker.features.iam import account_rest as accounts
from broker.features.iam import api_key_rest as api_keys
from broker.features.iam import explain_rest as explanations
from broker.features.iam import policy_calls as policies
from broker.features.iam import role_rest as roles
from broker.features.iam import whoami_rest as whoami
from broker.features.import_export import copy_rest as copies
from broker.features.import_export import rest as exports
from broker.features.inspect import backlog_rest as backlog_messages
from broker.features.inspect import consumer_rest as consumers
from broker.features.inspect import lag_rest as lag
from broker.features.inspect import publisher_rest as topic_publishers
from broker.features.inspect import tail_rest as tail
from broker.features.inspect import topic_rest as topic_messages
from broker.features.inspect.deliveries import rest as delivery_reports
from broker.features.journal import rest as journal_tail
from broker.features.operations import rest as operations
from broker.features.projects import rest as projects
from broker.features.purge import rest as purges
from broker.features.push_status import rest as pushes
from broker.features.quotas import rest as quotas
from broker.features.resend import rest as resends
from broker.features.reset import rest as resets
from broker.features.retraction import rest as retractions
from broker.features.schedules import rest as schedules
from broker.features.schemas import calls as schemas
from broker.features.transforms import rest as transforms
from broker.model.operation_verb import Verb

PROJECT = "projects/*"  # `*` for each id
TOPIC = f"{PROJECT}/topics/*"
SUBSCRIPTION = f"{PROJECT}/subscriptions/*"
SNAPSHOT = f"{PROJECT}/snapshots/*"
SCHEMA = f"{PROJECT}/schemas/*"
SERVICE_ACCOUNT = f"{PROJECT}/serviceAccounts/*"
ROLE = f"{PROJECT}/roles/*"
API_KEY = f"{PROJECT}/apiKeys/*"
OPERATION = f"{PROJECT}/operations/*"
SCHEDULE = f"{PROJECT}/schedules/*"

PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
HEALTH = "grpc.health.v1.Health"

PAGE = ("pageSize", "pageToken")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Row(Rpc):
    """A call, with its paths over REST and its services over gRPC; either may be none.

    `target`: of a call about a resource, the path within Google's request to the name of that resource.
    """

    rest: Sequence[Rest]
    grpc: Sequence[Grpc]
    target: str = ""


class Http(NamedTuple):
    """A method and a path of a call about a resource; `parameters`: of the query, beside fields of the request."""

    method: str
    path: str
    operation: str
    body: str | None = None
    parameters: Collection[str] = ()


def about_resource(
    *,
    name: str,
    kind: Kind,
    size: Size,
    audit: Audit,
    starts: Verb | None,
    needs: Needs,
    handler: Handler,
    target: str,
    http: Sequence[Http],
) -> Row:
    """A row of one of Google's calls about resources, which has one handler for REST and gRPC."""

    def rest(path: Http) -> Rest:
        parameters = query_parameters(name, target=target, body=path.body)
        called = rest_handler(name, handler, target=target, body=path.body)
        return Rest(path.method, path.path, path.operation, called, {*parameters, *path.parameters}, path.body)

    return Row(
        name=name,
        needs=needs,
        kind=kind,
        size=size,
        audit=audit,
        starts=starts,
        rest=[rest(path) for path in http],
        grpc=[Grpc(full_name(name.partition(".")[0]), grpc_handler(name, handler))],
        target=target,
    )


def _needed_to_start(verb: Verb) -> Needs:
    return next(row.needs for row in RPCS if row.starts is verb)


_operations = operations.OperationCalls(_needed_to_start)

_TOKEN = "push_config.oidc_token.service_account_email"  # noqa: S105
OPEN = Needs(is_open=True)
UPDATE_TOPIC = Needs(Need("pubsub.topics.update"))
UPDATE_SUBSCRIPTION = Needs(Need("pubsub.subscriptions.update"))
GET_SCHEDULE = Needs(Need("pubsub.schedules.get", on=On.PROJECT))
UPDATE_SCHEDULE = Needs(Need("pubsub.schedules.update", on=On.PROJECT))

# fmt: off
RPCS: Sequence[Row] = [
    # --- Topics ----------------------------------------------------------------------------------------------
    about_resource(
        name="Publisher.CreateTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(
            Need("pubsub.topics.create", "name", On.PROJECT),
            Need("pubsub.schemas.attach", "schema_settings.schema"),
        ),
        handler=topics.create_topic, target="name",
        http=[Http("PUT", TOPIC, "CreateTopic", WHOLE)],
    ),
    about_resource(
        name="Publisher.UpdateTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        needs=Needs(
            Need("pubsub.topics.update", "topic.name"),
            Need("pubsub.schemas.attach", "topic.schema_settings.schema", mask="schema_settings"),
        ),
        handler=topics.update_topic, target="topic.name",
        http=[Http("PATCH", TOPIC, "UpdateTopic", WHOLE)],
    ),
    about_resource(
        name="Publisher.GetTopic", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_TOPIC,
        handler=topics.get_topic, target="topic",
        http=[Http("GET", TOPIC, "GetTopic")],
    ),
    about_resource(
        name="Publisher.ListTopics", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.topics.list", "project", listed="topics")),
        handler=topics.list_topics, target="project",
        http=[Http("GET", f"{PROJECT}/topics", "ListTopics")],
    ),
    about_resource(
        name="Publisher.ListTopicSubscriptions", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_TOPIC,
        handler=topics.list_topic_subscriptions, target="topic",
        http=[Http("GET", f"{TOPIC}/subscriptions", "ListTopicSubscriptions")],
    ),
    about_resource(
        name="Publisher.ListTopicSnapshots", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_TOPIC,
        handler=topics.list_topic_snapshots, target="topic",
        http=[Http("GET", f"{TOPIC}/snapshots", "ListTopicSnapshots")],
    ),
    about_resource(
        name="Publisher.DeleteTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.topics.delete", "topic")),
        handler=topics.delete_topic, target="topic",
        http=[Http("DELETE", TOPIC, "DeleteTopic")],
    ),
    Row(
        name="FreezeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_TOPIC,
        rest=[Rest("POST", f"{TOPIC}:freeze", "FreezeTopic", freezes.freeze_topic, ())],
        grpc=[],
    ),
    Row(
        name="UnfreezeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_TOPIC,
        rest=[Rest("POST", f"{TOPIC}:unfreeze", "UnfreezeTopic", freezes.unfreeze_topic, ())],
        grpc=[],
    ),
    Row(
        name="PurgeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.topics.delete")),  # only the name of the topic is left
        rest=[Rest("POST", f"{TOPIC}:purge", "PurgeTopic", purges.purge_topic, ())],
        grpc=[],
    ),
    Row(
        name="ListTopicPublishers", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.topics.get")),  # as ListTopicSubscriptions
        rest=[Rest("GET", f"{TOPIC}:publishers", "ListTopicPublishers", topic_publishers.list_publishers, PAGE)],
        grpc=[],
    ),
    # --- Subscriptions ---------------------------------------------------------------------------------------
    about_resource(
        name="Subscriber.CreateSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(
            Need("pubsub.subscriptions.create", "name", On.PROJECT),
            Need("pubsub.topics.attachSubscription", "topic"),
            # Google asks its own agent for this; here the owner of the subscription has messages published there.
            Need("pubsub.topics.publish", "dead_letter_policy.dead_letter_topic"),
            Need(ACT_AS, _TOKEN, On.ACCOUNT),
            named_in="topic",
            to_update=(Need("pubsub.subscriptions.update", "name"), Need(ACT_AS, "name", On.PUSHED_AS)),
        ),
        handler=subscriptions.create_subscription, target="name",
        http=[Http("PUT", SUBSCRIPTION, "CreateSubscription", WHOLE, ("updateMask",))],
    ),
    about_resource(
        name="Subscriber.UpdateSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        needs=Needs(
            Need("pubsub.subscriptions.update", "subscription.name"),
            Need(
                "pubsub.topics.publish", "subscription.dead_letter_policy.dead_letter_topic",
                mask="dead_letter_policy",
            ),
            Need(ACT_AS, f"subscription.{_TOKEN}", On.ACCOUNT, mask="push_config"),
            # Otherwise a caller could have the token that is there already sent elsewhere.
            Need(ACT_AS, "subscription.name", On.PUSHED_AS, mask="push_config."),
        ),
        handler=subscriptions.update_subscription, target="subscription.name",
        http=[Http("PATCH", SUBSCRIPTION, "UpdateSubscription", WHOLE)],
    ),
    about_resource(
        name="Subscriber.GetSubscription", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.subscriptions.get", "subscription")),
        handler=subscriptions.get_subscription, target="subscription",
        http=[Http("GET", SUBSCRIPTION, "GetSubscription")],
    ),
    about_resource(
        name="Subscriber.ListSubscriptions", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.subscriptions.list", "project", listed="subscriptions")),
        handler=subscriptions.list_subscriptions, target="project",
        http=[Http("GET", f"{PROJECT}/subscriptions", "ListSubscriptions")],
    ),
    about_resource(
        name="Subscriber.DeleteSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.subscriptions.delete", "subscription")),
        handler=subscriptions.delete_subscription, target="subscription",
        http=[Http("DELETE", SUBSCRIPTION, "DeleteSubscription")],
    ),
    about_resource(
        name="Publisher.DetachSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.topics.detachSubscription", "subscription", On.TOPIC)),
        handler=subscriptions.detach_subscription, target="subscription",
        http=[Http("POST", f"{SUBSCRIPTION}:detach", "DetachSubscription")],
    ),
    Row(
        name="PauseSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SUBSCRIPTION,
        rest=[Rest("POST", f"{SUBSCRIPTION}:pause", "PauseSubscription", pauses.pause_subscription, ())],
        grpc=[],
    ),
    Row(
        name="ResumeSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SUBSCRIPTION,
        rest=[Rest("POST", f"{SUBSCRIPTION}:resume", "ResumeSubscription", pauses.resume_subscription, ())],
        grpc=[],
    ),
    Row(
        name="SetFilter", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SUBSCRIPTION,  # and ATTACH on the topic: a wider filter shows more messages
        rest=[Rest("POST", f"{SUBSCRIPTION}:setFilter", "SetFilter", filter_changes.set_filter, ())],
        grpc=[],
    ),
    Row(
        name="GetPosition", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SUBSCRIPTION,
        rest=[Rest("GET", f"{SUBSCRIPTION}/snapshot", "GetPosition", positions.get_position, ())],
        grpc=[],
    ),
    Row(
        name="ListConsumers", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SUBSCRIPTION,
        rest=[Rest("GET", f"{SUBSCRIPTION}/consumers", "ListConsumers", consumers.list_consumers, ("pageSize",))],
        grpc=[],
    ),
    # --- Publishing, pulling and acknowledging ---------------------------------------------------------------
    Row(
        name="Publisher.Publish", kind=Kind.HOT, size=Size.PUBLISH, audit=Audit.USE, starts=None,
        needs=PUBLISH,
        rest=[
            Rest("POST", f"{TOPIC}:publish", "Publish", publish.publish, ()),
            Rest("POST", f"{TOPIC}/publish", "PublishByPlainPath", publish.publish, ()),
        ],
        grpc=[Grpc(PUBLISHER, grpc_publish.publish)],
    ),
    Row(
        name="Subscriber.Pull", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[
            Rest("POST", f"{SUBSCRIPTION}:pull", "Pull", pull.pull, ("maxMessages", "returnImmediately")),
            Rest(
                "POST", f"{SUBSCRIPTION}/pull", "PullByPlainPath",
                pull.pull, ("maxMessages", "returnImmediately"),
            ),
        ],
        grpc=[Grpc(SUBSCRIBER, grpc_pull.pull)],
    ),
    Row(
        name="Subscriber.StreamingPull", kind=Kind.WAITING, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[],
        grpc=[Grpc(SUBSCRIBER, streaming=streaming_pull)],
    ),
    Row(
        name="Subscriber.Acknowledge", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[
            Rest("POST", f"{SUBSCRIPTION}:acknowledge", "Acknowledge", acknowledge.acknowledge, ()),
            Rest("POST", f"{SUBSCRIPTION}/acknowledge", "AcknowledgeByPlainPath", acknowledge.acknowledge, ()),
        ],
        grpc=[Grpc(SUBSCRIBER, grpc_acknowledge.acknowledge)],
    ),
    Row(
        name="Subscriber.ModifyAckDeadline", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[
            Rest(
                "POST", f"{SUBSCRIPTION}:modifyAckDeadline", "ModifyAckDeadline",
                acknowledge.modify_ack_deadline, (),
            ),
            Rest(
                "POST", f"{SUBSCRIPTION}/modifyAckDeadline", "ModifyAckDeadlineByPlainPath",
                acknowledge.modify_ack_deadline, (),
            ),
        ],
        grpc=[Grpc(SUBSCRIBER, grpc_acknowledge.modify_ack_deadline)],
    ),
    Row(
        name="Nack", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[Rest("POST", f"{SUBSCRIPTION}:nack", "Nack", acknowledge.nack, ())],
        grpc=[],
    ),
    Row(
        name="Reject", kind=Kind.HOT, size=Size.ACK_IDS, audit=Audit.USE, starts=None,
        needs=CONSUME,
        rest=[Rest("POST", f"{SUBSCRIPTION}:reject", "Reject", acknowledge.reject, ())],
        grpc=[],
    ),
    # --- Push ------------------------------------------------------------------------------------------------
    about_resource(
        name="Subscriber.ModifyPushConfig", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.subscriptions.update", "subscription"), Need(ACT_AS, _TOKEN, On.ACCOUNT)),
        handler=subscriptions.modify_push_config, target="subscription",
        http=[Http("POST", f"{SUBSCRIPTION}:modifyPushConfig", "ModifyPushConfig", WHOLE)],
    ),
    Row(
        name="GetPushStatus", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SUBSCRIPTION,
        rest=[Rest("GET", f"{SUBSCRIPTION}:pushStatus", "GetPushStatus", pushes.get_push_status, ())],
        grpc=[],
    ),
    Row(
        name="ListPushFailures", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=UPDATE_SUBSCRIPTION,  # they quote the answers of the endpoint
        rest=[
            Rest(
                "GET", f"{SUBSCRIPTION}:pushFailures", "ListPushFailures",
                pushes.list_push_failures, (*PAGE, "messageId"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="TestPush", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=UPDATE_SUBSCRIPTION,
        rest=[Rest("POST", f"{SUBSCRIPTION}:testPush", "TestPush", pushes.test_push, ())],
        grpc=[],
    ),
    Row(
        name="PausePush", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SUBSCRIPTION,
        rest=[Rest("POST", f"{SUBSCRIPTION}:pausePush", "PausePush", pushes.pause_push, ())],
        grpc=[],
    ),
    Row(
        name="ResumePush", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SUBSCRIPTION,
        rest=[Rest("POST", f"{SUBSCRIPTION}:resumePush", "ResumePush", pushes.resume_push, ())],
        grpc=[],
    ),
    Row(
        name="RecoverPushes", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.RECOVER,
        needs=CONSUME,  # as a redrive
        rest=[Rest("POST", f"{SUBSCRIPTION}:recover", "RecoverPushes", push_replays.recover, ())],
        grpc=[],
    ),
    Row(
        name="ReplayMissingPushes",
        kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.REPLAY_MISSING,
        needs=CONSUME,  # as a seek
        rest=[
            Rest("POST", f"{SUBSCRIPTION}:replayMissing", "ReplayMissingPushes", push_replays.replay_missing, ()),
        ],
        grpc=[],
    ),
    # --- Snapshots, and moving a subscription ----------------------------------------------------------------
    about_resource(
        name="Subscriber.CreateSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(
            Need("pubsub.snapshots.create", "name", On.PROJECT),
            Need("pubsub.subscriptions.consume", "subscription"),
            named_in="subscription",
        ),
        handler=snapshots.create_snapshot, target="name",
        http=[Http("PUT", SNAPSHOT, "CreateSnapshot", WHOLE)],
    ),
    about_resource(
        name="Subscriber.UpdateSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        needs=Needs(Need("pubsub.snapshots.update", "snapshot.name")),
        handler=snapshots.update_snapshot, target="snapshot.name",
        http=[Http("PATCH", SNAPSHOT, "UpdateSnapshot", WHOLE)],
    ),
    about_resource(
        name="Subscriber.GetSnapshot", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.snapshots.get", "snapshot")),
        handler=snapshots.get_snapshot, target="snapshot",
        http=[Http("GET", SNAPSHOT, "GetSnapshot")],
    ),
    about_resource(
        name="Subscriber.ListSnapshots", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.snapshots.list", "project", listed="snapshots")),
        handler=snapshots.list_snapshots, target="project",
        http=[Http("GET", f"{PROJECT}/snapshots", "ListSnapshots")],
    ),
    about_resource(
        name="Subscriber.DeleteSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.snapshots.delete", "snapshot")),
        handler=snapshots.delete_snapshot, target="snapshot",
        http=[Http("DELETE", SNAPSHOT, "DeleteSnapshot")],
    ),
    about_resource(
        name="Subscriber.Seek", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=SEEK,
        handler=snapshots.seek, target="subscription",
        http=[
            Http("POST", f"{SUBSCRIPTION}:seek", "Seek", WHOLE),
            Http("POST", f"{SUBSCRIPTION}/seek", "SeekByPlainPath", WHOLE),
        ],
    ),
    Row(
        name="PreviewSeek", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=CONSUME,  # and SEEK on a snapshot
        rest=[Rest("POST", f"{SUBSCRIPTION}:previewSeek", "PreviewSeek", seeks.preview_seek, ())],
        grpc=[],
    ),
    Row(
        name="UndoSeek", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=CONSUME,
        rest=[Rest("POST", f"{SUBSCRIPTION}:undoSeek", "UndoSeek", seeks.undo_seek, ())],
        grpc=[],
    ),
    Row(
        name="PurgeSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.PURGE,
        needs=CONSUME,  # as a seek
        rest=[Rest("POST", f"{SUBSCRIPTION}:purge", "PurgeSubscription", purges.purge_subscription, ())],
        grpc=[],
    ),
    Row(
        name="ResendMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=CONSUME,  # as a seek
        rest=[Rest("POST", f"{SUBSCRIPTION}:resend", "ResendMessages", resends.resend, ())],
        grpc=[],
    ),
    # --- Messages --------------------------------------------------------------------------------------------
    Row(
        name="GetMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        # Lists only the subscriptions that the caller may get.
        needs=Needs(Need("pubsub.topics.attachSubscription", on=On.ABOVE)),
        rest=[Rest("GET", f"{TOPIC}/messages/*", "GetMessage", delivery_reports.get_message, PAGE)],
        grpc=[],
    ),
    Row(
        name="FindMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.topics.list", on=On.ABOVE)),  # and ATTACH on the topic of the message
        rest=[Rest("GET", f"{PROJECT}/messages/*", "FindMessage", delivery_reports.find_message, PAGE)],
        grpc=[],
    ),
    Row(
        name="GetSubscriptionMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.subscriptions.get", on=On.ABOVE)),  # shows no message bodies
        rest=[
            Rest(
                "GET", f"{SUBSCRIPTION}/messages/*", "GetSubscriptionMessage",
                delivery_reports.get_subscription_message, (),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="ListSubscriptionMessages", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=CONSUME,  # shows message bodies
        rest=[
            Rest(
                "GET", f"{SUBSCRIPTION}/messages", "ListSubscriptionMessages",
                backlog_messages.list_messages, (*PAGE, "contains", "filter", "state"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="ListTopicMessages", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=ATTACH,  # shows message bodies, as a subscription does
        rest=[
            Rest(
                "GET", f"{TOPIC}/messages", "ListTopicMessages",
                topic_messages.list_messages, (*PAGE, "endTime", "filter", "order", "orderingKey", "startTime"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="TailSubscription", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SUBSCRIPTION,  # shows no message bodies
        rest=[
            Rest("GET", f"{SUBSCRIPTION}:tail", "TailSubscription", journal_tail.tail_subscription, ("startTime",)),
        ],
        grpc=[],
    ),
    Row(
        name="TailTopic", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=ATTACH,  # shows message bodies, as a subscription does
        rest=[Rest("GET", f"{TOPIC}:tail", "TailTopic", tail.tail_topic, ("filter",))],
        grpc=[],
    ),
    Row(
        name="TestFilter", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
        # Shows message bodies.
        needs=Needs(
            Need({"topics": "pubsub.topics.attachSubscription", "subscriptions": "pubsub.subscriptions.consume"}),
        ),
        rest=[
            Rest("POST", f"{TOPIC}:testFilter", "TestFilter", filters.test_filter, ()),
            Rest(
                "POST", f"{SUBSCRIPTION}:testFilter", "TestFilterOfSubscription",
                filters.test_filter_of_subscription, (),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="ListLag", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=LIST_SUBSCRIPTIONS,
        rest=[Rest("GET", f"{PROJECT}/lag", "ListLag", lag.list_lag, ("pageSize",))],
        grpc=[],
    ),
    Row(
        name="RetractMessages", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
        needs=UPDATE_TOPIC,  # as CancelScheduled
        rest=[Rest("POST", f"{TOPIC}:retract", "RetractMessages", retractions.retract, ())],
        grpc=[],
    ),
    Row(
        name="ReplaceMessage", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
        needs=Needs(Need("pubsub.topics.update"), Need("pubsub.topics.publish")),
        rest=[Rest("POST", f"{TOPIC}:replace", "ReplaceMessage", retractions.replace, ())],
        grpc=[],
    ),
    Row(
        name="CopyTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.COPY,
        needs=ATTACH,  # shows message bodies, as a subscription does; and PUBLISH on the target
        rest=[Rest("POST", f"{TOPIC}:copy", "CopyTopic", copies.copy_topic, ())],
        grpc=[],
    ),
    Row(
        name="ExportTopic", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=ATTACH,  # shows message bodies, as a subscription does
        rest=[Rest("POST", f"{TOPIC}:export", "ExportTopic", exports.export_topic, ())],
        grpc=[],
    ),
    Row(
        name="ImportTopic", kind=Kind.CHANGE, size=Size.IMPORT, audit=Audit.MESSAGES, starts=None,
        needs=PUBLISH,
        rest=[Rest("POST", f"{TOPIC}:import", "ImportTopic", exports.import_topic, ("importId", "part", "expiry"))],
        grpc=[],
    ),
    # --- Dead letters ----------------------------------------------------------------------------------------
    Row(
        name="ListDeadLetters", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=CONSUME,  # shows message bodies
        rest=[
            Rest(
                "GET", f"{SUBSCRIPTION}/deadLetters", "ListDeadLetters",
                dead_letters.list_dead_letters,
                (*PAGE, "attribute:*", "filter", "groupBy", "hour", "reason", "status"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="Redrive", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.REDRIVE,
        needs=CONSUME,  # touches only the subscriptions of the dead-letter topic that the caller may consume
        rest=[Rest("POST", f"{SUBSCRIPTION}:redrive", "Redrive", redrives.redrive, ())],
        grpc=[],
    ),
    Row(
        name="Discard", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=CONSUME,  # as a redrive
        rest=[Rest("POST", f"{SUBSCRIPTION}:discard", "Discard", discards.discard, ())],
        grpc=[],
    ),
    Row(
        name="EditDeadLetter", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
        needs=CONSUME,  # as a redrive
        rest=[Rest("POST", f"{SUBSCRIPTION}:editDeadLetter", "EditDeadLetter", edits.edit_dead_letter, ())],
        grpc=[],
    ),
    # --- Scheduled messages, and schedules -------------------------------------------------------------------
    Row(
        name="ListScheduled", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=ATTACH,  # shows message bodies, as a subscription does
        rest=[Rest("GET", f"{TOPIC}/scheduled", "ListScheduled", schedule.list_scheduled, PAGE)],
        grpc=[],
    ),
    Row(
        name="GetScheduled", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.topics.attachSubscription", on=On.ABOVE)),  # shows a message body
        rest=[Rest("GET", f"{TOPIC}/scheduled/*", "GetScheduled", schedule.get_scheduled, ())],
        grpc=[],
    ),
    Row(
        name="UpdateScheduled", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
        needs=Needs(Need("pubsub.topics.update", on=On.ABOVE)),  # whoever published the message
        rest=[
            Rest("PATCH", f"{TOPIC}/scheduled/*", "UpdateScheduled", schedule.update_scheduled, ("updateMask",)),
        ],
        grpc=[],
    ),
    Row(
        name="CancelScheduled", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
        needs=Needs(Need("pubsub.topics.update", on=On.ABOVE)),  # whoever published the message
        rest=[Rest("DELETE", f"{TOPIC}/scheduled/*", "CancelScheduled", schedule.cancel_scheduled, ())],
        grpc=[],
    ),
    Row(
        name="PutSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        # A schedule has no policy of its own; and PUBLISH on the topic.
        needs=Needs(Need("pubsub.schedules.create", on=On.PROJECT)),
        rest=[Rest("PUT", SCHEDULE, "PutSchedule", schedules.put_schedule, ())],
        grpc=[],
    ),
    Row(
        name="GetSchedule", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SCHEDULE,
        rest=[Rest("GET", SCHEDULE, "GetSchedule", schedules.get_schedule, ())],
        grpc=[],
    ),
    Row(
        name="ListSchedules", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.schedules.list")),
        rest=[Rest("GET", f"{PROJECT}/schedules", "ListSchedules", schedules.list_schedules, PAGE)],
        grpc=[],
    ),
    Row(
        name="DeleteSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schedules.delete", on=On.PROJECT)),
        rest=[Rest("DELETE", SCHEDULE, "DeleteSchedule", schedules.delete_schedule, ())],
        grpc=[],
    ),
    Row(
        name="PauseSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SCHEDULE,
        rest=[Rest("POST", f"{SCHEDULE}:pause", "PauseSchedule", schedules.pause_schedule, ())],
        grpc=[],
    ),
    Row(
        name="ResumeSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=UPDATE_SCHEDULE,
        rest=[Rest("POST", f"{SCHEDULE}:resume", "ResumeSchedule", schedules.resume_schedule, ())],
        grpc=[],
    ),
    Row(
        name="RunSchedule", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schedules.run", on=On.PROJECT)),
        rest=[Rest("POST", f"{SCHEDULE}:run", "RunSchedule", schedules.run_schedule, ())],
        grpc=[],
    ),
    Row(
        name="ListNextTicks", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SCHEDULE,
        rest=[Rest("GET", f"{SCHEDULE}:next", "ListNextTicks", schedules.list_next_ticks, ("pageSize",))],
        grpc=[],
    ),
    Row(
        name="ListScheduleTicks", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=GET_SCHEDULE,
        rest=[Rest("GET", f"{SCHEDULE}/ticks", "ListScheduleTicks", schedules.list_schedule_ticks, ("pageSize",))],
        grpc=[],
    ),
    # --- Schemas ---------------------------------------------------------------------------------------------
    about_resource(
        name="SchemaService.CreateSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(Need("pubsub.schemas.create", "parent", On.PROJECT)),
        handler=schemas.create_schema, target="parent",
        http=[Http("POST", f"{PROJECT}/schemas", "CreateSchema", "schema")],
    ),
    about_resource(
        name="SchemaService.GetSchema", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.schemas.get", "name")),
        handler=schemas.get_schema, target="name",
        http=[Http("GET", SCHEMA, "GetSchema")],
    ),
    about_resource(
        name="SchemaService.ListSchemas", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.schemas.list", "parent", On.PROJECT, listed="schemas")),
        handler=schemas.list_schemas, target="parent",
        http=[Http("GET", f"{PROJECT}/schemas", "ListSchemas")],
    ),
    about_resource(
        name="SchemaService.ListSchemaRevisions", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.schemas.listRevisions", "name")),
        handler=schemas.list_schema_revisions, target="name",
        http=[Http("GET", f"{SCHEMA}:listRevisions", "ListSchemaRevisions")],
    ),
    about_resource(
        name="SchemaService.CommitSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schemas.commit", "name")),
        handler=schemas.commit_schema, target="name",
        http=[Http("POST", f"{SCHEMA}:commit", "CommitSchema", WHOLE)],
    ),
    about_resource(
        name="SchemaService.RollbackSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schemas.rollback", "name")),
        handler=schemas.rollback_schema, target="name",
        http=[Http("POST", f"{SCHEMA}:rollback", "RollbackSchema", WHOLE)],
    ),
    about_resource(
        name="SchemaService.DeleteSchemaRevision",
        kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schemas.delete", "name")),
        handler=schemas.delete_schema_revision, target="name",
        http=[Http("DELETE", f"{SCHEMA}:deleteRevision", "DeleteSchemaRevision")],
    ),
    about_resource(
        name="SchemaService.DeleteSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("pubsub.schemas.delete", "name")),
        handler=schemas.delete_schema, target="name",
        http=[Http("DELETE", SCHEMA, "DeleteSchema")],
    ),
    about_resource(
        name="SchemaService.ValidateSchema", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.schemas.validate", "parent", On.PROJECT)),
        handler=schemas.validate_schema, target="parent",
        http=[Http("POST", f"{PROJECT}/schemas:validate", "ValidateSchema", WHOLE)],
    ),
    about_resource(
        name="SchemaService.ValidateMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(
            Need("pubsub.schemas.validate", "parent", On.PROJECT),
            Need("pubsub.schemas.get", "name"),
        ),
        handler=schemas.validate_message, target="parent",
        http=[Http("POST", f"{PROJECT}/schemas:validateMessage", "ValidateMessage", WHOLE)],
    ),
    # --- Message transforms ----------------------------------------------------------------------------------
    Row(
        name="ValidateMessageTransform", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.messageTransforms.validate")),
        rest=[
            Rest(
                "POST", f"{PROJECT}:validateMessageTransform", "ValidateMessageTransform",
                transforms.validate, (),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="TestMessageTransforms", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        # And ATTACH or CONSUME on the topic or subscription that the request names.
        needs=Needs(Need("pubsub.messageTransforms.validate")),
        rest=[Rest("POST", f"{PROJECT}:testMessageTransforms", "TestMessageTransforms", transforms.test, ())],
        grpc=[],
    ),
    # --- Operations ------------------------------------------------------------------------------------------
    Row(
        name="Operations.ListOperations", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=LIST_SUBSCRIPTIONS,
        rest=[
            Rest(
                "GET", f"{PROJECT}/operations", "ListOperations",
                _operations.list_operations, (*PAGE, "orderBy", "filter"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="Operations.GetOperation", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # the handler asks: the caller may list operations, or start this one
        rest=[Rest("GET", OPERATION, "GetOperation", _operations.get_operation, ())],
        grpc=[],
    ),
    Row(
        name="Operations.WaitOperation", kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # as GetOperation
        rest=[Rest("POST", f"{OPERATION}:wait", "WaitOperation", _operations.wait_operation, ())],
        grpc=[],
    ),
    Row(
        name="Operations.CancelOperation", kind=Kind.CHANGE, size=Size.SMALL, audit=Audit.CHANGE, starts=None,
        needs=NOTHING,  # the handler asks: the caller may start this operation
        rest=[Rest("POST", f"{OPERATION}:cancel", "CancelOperation", _operations.cancel_operation, ())],
        grpc=[],
    ),
    Row(
        name="Operations.DeleteOperation", kind=Kind.CHANGE, size=Size.SMALL, audit=Audit.CHANGE, starts=None,
        needs=NOTHING,  # as CancelOperation
        rest=[Rest("DELETE", OPERATION, "DeleteOperation", _operations.delete_operation, ())],
        grpc=[],
    ),
    # --- Projects --------------------------------------------------------------------------------------------
    Row(
        name="Projects.ListProjects", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # callers see the projects in which they have a role
        rest=[Rest("GET", "projects", "ListProjects", projects.list_projects, PAGE)],
        grpc=[],
    ),
    Row(
        name="ResetProject", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(
            Need("pubsub.topics.delete"),
            Need("pubsub.subscriptions.delete"),
            Need("pubsub.snapshots.delete"),
            Need("pubsub.schemas.delete"),
        ),
        rest=[Rest("POST", f"{PROJECT}:reset", "ResetProject", resets.reset_project, ())],
        grpc=[],
    ),
    Row(
        name="Settings.GetSettings", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("pubsub.topics.list")),
        rest=[Rest("GET", f"{PROJECT}/settings", "GetSettings", settings.get_settings, ())],
        grpc=[],
    ),
    Row(
        name="Settings.UpdateSettings", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        needs=Needs(
        # Whoever sets the event topic has events published there.
            Need("pubsub.topics.update", on=On.PROJECT),
            Need("pubsub.topics.publish", on=On.PROJECT),
        ),
        rest=[Rest("PATCH", f"{PROJECT}/settings", "UpdateSettings", settings.update_settings, ())],
        grpc=[],
    ),
    Row(
        name="Quotas.GetQuotas", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("serviceusage.quotas.get")),
        rest=[Rest("GET", f"{PROJECT}/quotas", "GetQuotas", quotas.get_quotas, ())],
        grpc=[],
    ),
    Row(
        name="Quotas.UpdateQuotas", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        # Quotas restrict the owner of a project, so only the installation sets them.
        needs=Needs(Need("serviceusage.quotas.update", on=On.INSTALLATION)),
        rest=[Rest("PATCH", f"{PROJECT}/quotas", "UpdateQuotas", quotas.update_quotas, ())],
        grpc=[],
    ),
    Row(
        name="Logging.ListAuditLogs", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("logging.privateLogEntries.list")),
        rest=[Rest("GET", f"{PROJECT}/auditLogs", "ListAuditLogs", audit_logs.list_audit_logs, (*PAGE, "filter"))],
        grpc=[],
    ),
    # --- Access ----------------------------------------------------------------------------------------------
    about_resource(
        name="IAMPolicy.GetIamPolicy", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need(policy_permissions("getIamPolicy"), "resource")),
        handler=policies.get_iam_policy, target="resource",
        http=[
            Http("GET", f"{TOPIC}:getIamPolicy", "GetIamPolicyOfTopic"),
            Http("GET", f"{SUBSCRIPTION}:getIamPolicy", "GetIamPolicyOfSubscription"),
            Http("GET", f"{SNAPSHOT}:getIamPolicy", "GetIamPolicyOfSnapshot"),
            Http("GET", f"{SCHEMA}:getIamPolicy", "GetIamPolicyOfSchema"),
            Http("POST", f"{PROJECT}:getIamPolicy", "GetIamPolicyOfProject", WHOLE),
            Http("POST", f"{SERVICE_ACCOUNT}:getIamPolicy", "GetIamPolicyOfServiceAccount", WHOLE),
        ],
    ),
    about_resource(
        name="IAMPolicy.SetIamPolicy", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need(policy_permissions("setIamPolicy"), "resource")),
        handler=policies.set_iam_policy, target="resource",
        http=[
            Http("POST", f"{TOPIC}:setIamPolicy", "SetIamPolicyOfTopic", WHOLE),
            Http("POST", f"{SUBSCRIPTION}:setIamPolicy", "SetIamPolicyOfSubscription", WHOLE),
            Http("POST", f"{SNAPSHOT}:setIamPolicy", "SetIamPolicyOfSnapshot", WHOLE),
            Http("POST", f"{SCHEMA}:setIamPolicy", "SetIamPolicyOfSchema", WHOLE),
            Http("POST", f"{PROJECT}:setIamPolicy", "SetIamPolicyOfProject", WHOLE),
            Http("POST", f"{SERVICE_ACCOUNT}:setIamPolicy", "SetIamPolicyOfServiceAccount", WHOLE),
        ],
    ),
    about_resource(
        name="IAMPolicy.TestIamPermissions", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # tells callers about themselves alone
        handler=policies.test_iam_permissions, target="resource",
        http=[
            Http("POST", f"{TOPIC}:testIamPermissions", "TestIamPermissionsOfTopic", WHOLE),
            Http("POST", f"{SUBSCRIPTION}:testIamPermissions", "TestIamPermissionsOfSubscription", WHOLE),
            Http("POST", f"{SNAPSHOT}:testIamPermissions", "TestIamPermissionsOfSnapshot", WHOLE),
            Http("POST", f"{SCHEMA}:testIamPermissions", "TestIamPermissionsOfSchema", WHOLE),
            Http("POST", f"{PROJECT}:testIamPermissions", "TestIamPermissionsOfProject", WHOLE),
            Http("POST", f"{SERVICE_ACCOUNT}:testIamPermissions", "TestIamPermissionsOfServiceAccount", WHOLE),
        ],
    ),
    Row(
        name="IAM.ExplainAccess", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        # The handler shows the policies of other levels to callers who may read those.
        needs=Needs(Need("resourcemanager.projects.getIamPolicy")),
        rest=[Rest("POST", f"{PROJECT}:explainAccess", "ExplainAccess", explanations.explain_access, ())],
        grpc=[],
    ),
    Row(
        name="IAM.WhoAmI", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # tells callers about themselves alone
        rest=[Rest("GET", "whoami", "WhoAmI", whoami.who_am_i, ())],
        grpc=[],
    ),
    Row(
        name="IAM.CreateServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.create")),
        rest=[
            Rest("POST", f"{PROJECT}/serviceAccounts", "CreateServiceAccount", accounts.create_service_account, ()),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.ListServiceAccounts", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.list", listed="serviceAccounts")),
        rest=[
            Rest("GET", f"{PROJECT}/serviceAccounts", "ListServiceAccounts", accounts.list_service_accounts, PAGE),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.GetServiceAccount", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.get")),
        rest=[Rest("GET", SERVICE_ACCOUNT, "GetServiceAccount", accounts.get_service_account, ())],
        grpc=[],
    ),
    Row(
        name="IAM.DeleteServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.delete")),
        rest=[Rest("DELETE", SERVICE_ACCOUNT, "DeleteServiceAccount", accounts.delete_service_account, ())],
        grpc=[],
    ),
    Row(
        name="IAM.DisableServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.disable")),
        rest=[
            Rest(
                "POST", f"{SERVICE_ACCOUNT}:disable", "DisableServiceAccount",
                accounts.disable_service_account, (),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.EnableServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.serviceAccounts.enable")),
        rest=[
            Rest("POST", f"{SERVICE_ACCOUNT}:enable", "EnableServiceAccount", accounts.enable_service_account, ()),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.CreateServiceAccountKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(Need("iam.serviceAccountKeys.create")),
        rest=[Rest("POST", f"{SERVICE_ACCOUNT}/keys", "CreateServiceAccountKey", accounts.create_key, ())],
        grpc=[],
    ),
    Row(
        name="IAM.ListServiceAccountKeys", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.serviceAccountKeys.list")),
        rest=[Rest("GET", f"{SERVICE_ACCOUNT}/keys", "ListServiceAccountKeys", accounts.list_keys, ("keyTypes",))],
        grpc=[],
    ),
    Row(
        name="IAM.GetServiceAccountKey", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.serviceAccountKeys.get")),
        rest=[
            Rest("GET", f"{SERVICE_ACCOUNT}/keys/*", "GetServiceAccountKey", accounts.get_key, ("publicKeyType",)),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.DeleteServiceAccountKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.serviceAccountKeys.delete")),
        rest=[Rest("DELETE", f"{SERVICE_ACCOUNT}/keys/*", "DeleteServiceAccountKey", accounts.delete_key, ())],
        grpc=[],
    ),
    Row(
        name="IAM.CreateRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        needs=Needs(Need("iam.roles.create")),
        rest=[Rest("POST", f"{PROJECT}/roles", "CreateRole", roles.create_role, ())],
        grpc=[],
    ),
    Row(
        name="IAM.ListRoles", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.roles.list")),
        rest=[Rest("GET", f"{PROJECT}/roles", "ListRoles", roles.list_roles, (*PAGE, "showDeleted", "view"))],
        grpc=[],
    ),
    Row(
        name="IAM.GetRole", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("iam.roles.get")),
        rest=[Rest("GET", ROLE, "GetRole", roles.get_role, ())],
        grpc=[],
    ),
    Row(
        name="IAM.UpdateRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
        needs=Needs(Need("iam.roles.update")),
        rest=[Rest("PATCH", ROLE, "UpdateRole", roles.update_role, ("updateMask",))],
        grpc=[],
    ),
    Row(
        name="IAM.DeleteRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.roles.delete")),
        rest=[Rest("DELETE", ROLE, "DeleteRole", roles.delete_role, ("etag",))],
        grpc=[],
    ),
    Row(
        name="IAM.UndeleteRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("iam.roles.undelete")),
        rest=[Rest("POST", f"{ROLE}:undelete", "UndeleteRole", roles.undelete_role, ())],
        grpc=[],
    ),
    Row(
        name="IAM.ListPredefinedRoles", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # every broker of this version has the same
        rest=[
            Rest(
                "GET", "roles", "ListPredefinedRoles",
                roles.list_predefined_roles, (*PAGE, "parent", "showDeleted", "view"),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="IAM.GetPredefinedRole", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # as ListPredefinedRoles
        rest=[Rest("GET", "roles/*", "GetPredefinedRole", roles.get_predefined_role, ())],
        grpc=[],
    ),
    Row(
        name="IAM.QueryTestablePermissions", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,  # as ListPredefinedRoles
        rest=[
            Rest(
                "POST", "permissions:queryTestablePermissions", "QueryTestablePermissions",
                roles.query_testable_permissions, (),
            ),
        ],
        grpc=[],
    ),
    Row(
        name="ApiKeys.CreateApiKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
        # A key has roles: whoever creates one grants them.
        needs=Needs(Need("apikeys.keys.create"), Need("resourcemanager.projects.setIamPolicy")),
        rest=[Rest("POST", f"{PROJECT}/apiKeys", "CreateApiKey", api_keys.create_api_key, ())],
        grpc=[],
    ),
    Row(
        name="ApiKeys.ListApiKeys", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("apikeys.keys.list")),
        rest=[Rest("GET", f"{PROJECT}/apiKeys", "ListApiKeys", api_keys.list_api_keys, PAGE)],
        grpc=[],
    ),
    Row(
        name="ApiKeys.GetApiKey", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
        needs=Needs(Need("apikeys.keys.get", on=On.PROJECT)),
        rest=[Rest("GET", API_KEY, "GetApiKey", api_keys.get_api_key, ())],
        grpc=[],
    ),
    Row(
        name="ApiKeys.DeleteApiKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
        needs=Needs(Need("apikeys.keys.delete", on=On.PROJECT)),
        rest=[Rest("DELETE", API_KEY, "DeleteApiKey", api_keys.delete_api_key, ())],
        grpc=[],
    ),
    # --- Health and reflection: over gRPC alone --------------------------------------------------------------
    Row(
        name="Health.Check", kind=Kind.PROBE, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=OPEN,
        rest=[],
        grpc=[Grpc(HEALTH, health.check)],
    ),
    Row(
        name="Health.Watch", kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=OPEN,
        rest=[],
        grpc=[Grpc(HEALTH, streaming=health.watch)],
    ),
    Row(
        name="ServerReflection.ServerReflectionInfo",
        kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,
        rest=[],
        grpc=[
            Grpc("grpc.reflection.v1.ServerReflection", streaming=reflection.server_reflection),
            Grpc("grpc.reflection.v1alpha.ServerReflection", streaming=reflection.server_reflection),
        ],
    ),
]
# fmt: on


ROUTES: Sequence[Route] = [
    Route(row, rest.method, rest.path, rest.operation, rest.handler, rest.parameters, rest.body)
    for row in RPCS
    for rest in row.rest
]
METHODS: Sequence[Method] = [
    Method(row, grpc.service, grpc.unary, grpc.streaming) for row in RPCS for grpc in row.grpc
]
