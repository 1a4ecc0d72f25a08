"""What each call needs: permissions, each on a resource that the call names.

One table for both doors, by the names of the RPCs; tests hold it complete against the routes and the methods.  As
Google documents them (https://cloud.google.com/pubsub/docs/access-control#required_permissions); an extension needs
what Google's nearest call does.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from broker.access.policies.authorizer import Required
from broker.domain.errors import NotFound
from broker.domain.names import check_shape, project_of
from broker.domain.policy import ABOVE_PROJECTS
from broker.domain.service_account import ANY_PROJECT
from broker.domain.subscription import Subscription

FindSubscription = Callable[[str], Awaitable[Subscription]]


class On(Enum):
    """Which resource, by the value that a request has."""

    ITSELF = "the resource of that name"
    PROJECT = "its project"
    ABOVE = "what it is in"
    INSTALLATION = "what is above all projects"
    TOPIC = "the topic of the subscription of that name"
    ACCOUNT = "the service account with that address"
    PUSHED_AS = "the service account that pushes of the subscription of that name have now"


class Need(NamedTuple):
    """`permission`: by the collection of the resource, where that differs.  `field`: the path within Google's
    request to the name, empty: the resource that the call is about.  A field other than the first may be empty:
    then nothing is needed.  `mask`: only where the update mask has a path that begins so.
    """

    permission: str | Mapping[str, str]
    field: str = ""
    on: On = On.ITSELF
    mask: str = ""


def _policies(verb: str) -> Mapping[str, str]:
    own = {name: f"pubsub.{name}.{verb}" for name in ("topics", "subscriptions", "snapshots", "schemas")}
    return own | {"serviceAccounts": f"iam.serviceAccounts.{verb}", "": f"resourcemanager.projects.{verb}"}


_CONSUME = (Need("pubsub.subscriptions.consume"),)
_GET_SUBSCRIPTION = (Need("pubsub.subscriptions.get"),)
_UPDATE_SUBSCRIPTION = (Need("pubsub.subscriptions.update"),)
_ACT_AS = "iam.serviceAccounts.actAs"
_PUBLISH = "pubsub.topics.publish"
_TOKEN = "push_config.oidc_token.service_account_email"  # noqa: S105
_SCHEMAS = {
    "CreateSchema": (Need("pubsub.schemas.create", "parent", On.PROJECT),),
    "GetSchema": (Need("pubsub.schemas.get", "name"),),
    "ListSchemas": (Need("pubsub.schemas.list", "parent", On.PROJECT),),
    "ListSchemaRevisions": (Need("pubsub.schemas.listRevisions", "name"),),
    "CommitSchema": (Need("pubsub.schemas.commit", "name"),),
    "RollbackSchema": (Need("pubsub.schemas.rollback", "name"),),
    "DeleteSchemaRevision": (Need("pubsub.schemas.delete", "name"),),
    "DeleteSchema": (Need("pubsub.schemas.delete", "name"),),
    "ValidateSchema": (Need("pubsub.schemas.validate", "parent", On.PROJECT),),
    "ValidateMessage": (
        Need("pubsub.schemas.validate", "parent", On.PROJECT),
        Need("pubsub.schemas.get", "name"),
    ),
}

_PUBLISHER = {
    "CreateTopic": (
        Need("pubsub.topics.create", "name", On.PROJECT),
        Need("pubsub.schemas.attach", "schema_settings.schema"),
    ),
    "UpdateTopic": (
        Need("pubsub.topics.update", "topic.name"),
        Need("pubsub.schemas.attach", "topic.schema_settings.schema", mask="schema_settings"),
    ),
    "Publish": (Need(_PUBLISH),),
    "GetTopic": (Need("pubsub.topics.get", "topic"),),
    "ListTopics": (Need("pubsub.topics.list", "project"),),
    "ListTopicSubscriptions": (Need("pubsub.topics.get", "topic"),),
    "ListTopicSnapshots": (Need("pubsub.topics.get", "topic"),),
    "DeleteTopic": (Need("pubsub.topics.delete", "topic"),),
    "DetachSubscription": (Need("pubsub.topics.detachSubscription", "subscription", On.TOPIC),),
}

_SUBSCRIBER = {
    "CreateSubscription": (
        Need("pubsub.subscriptions.create", "name", On.PROJECT),
        Need("pubsub.topics.attachSubscription", "topic"),
        # Google asks its own agent for this; here it is the subscription's owner who has messages published there.
        Need(_PUBLISH, "dead_letter_policy.dead_letter_topic"),
        Need(_ACT_AS, _TOKEN, On.ACCOUNT),
    ),
    "GetSubscription": (Need("pubsub.subscriptions.get", "subscription"),),
    "UpdateSubscription": (
        Need("pubsub.subscriptions.update", "subscription.name"),
        Need(_PUBLISH, "subscription.dead_letter_policy.dead_letter_topic", mask="dead_letter_policy"),
        Need(_ACT_AS, f"subscription.{_TOKEN}", On.ACCOUNT, mask="push_config"),
        # Else a token that is there already could be had sent elsewhere.
        Need(_ACT_AS, "subscription.name", On.PUSHED_AS, mask="push_config."),
    ),
    "ListSubscriptions": (Need("pubsub.subscriptions.list", "project"),),
    "DeleteSubscription": (Need("pubsub.subscriptions.delete", "subscription"),),
    "ModifyAckDeadline": _CONSUME,
    "Acknowledge": _CONSUME,
    "Pull": _CONSUME,
    "StreamingPull": _CONSUME,
    "ModifyPushConfig": (
        Need("pubsub.subscriptions.update", "subscription"),
        Need(_ACT_AS, _TOKEN, On.ACCOUNT),
    ),
    "GetSnapshot": (Need("pubsub.snapshots.get", "snapshot"),),
    "ListSnapshots": (Need("pubsub.snapshots.list", "project"),),
    "CreateSnapshot": (
        Need("pubsub.snapshots.create", "name", On.PROJECT),
        Need("pubsub.subscriptions.consume", "subscription"),
    ),
    "UpdateSnapshot": (Need("pubsub.snapshots.update", "snapshot.name"),),
    "DeleteSnapshot": (Need("pubsub.snapshots.delete", "snapshot"),),
    "Seek": (Need("pubsub.subscriptions.consume", "subscription"), Need("pubsub.snapshots.seek", "snapshot")),
}

_IAM = {
    "CreateServiceAccount": (Need("iam.serviceAccounts.create"),),
    "ListServiceAccounts": (Need("iam.serviceAccounts.list"),),
    "GetServiceAccount": (Need("iam.serviceAccounts.get"),),
    "DeleteServiceAccount": (Need("iam.serviceAccounts.delete"),),
    "DisableServiceAccount": (Need("iam.serviceAccounts.disable"),),
    "EnableServiceAccount": (Need("iam.serviceAccounts.enable"),),
    "CreateServiceAccountKey": (Need("iam.serviceAccountKeys.create"),),
    "ListServiceAccountKeys": (Need("iam.serviceAccountKeys.list"),),
    "GetServiceAccountKey": (Need("iam.serviceAccountKeys.get"),),
    "DeleteServiceAccountKey": (Need("iam.serviceAccountKeys.delete"),),
    "CreateRole": (Need("iam.roles.create"),),
    "ListRoles": (Need("iam.roles.list"),),
    "GetRole": (Need("iam.roles.get"),),
    "UpdateRole": (Need("iam.roles.update"),),
    "DeleteRole": (Need("iam.roles.delete"),),
    "UndeleteRole": (Need("iam.roles.undelete"),),
    # These tell what every broker of this version knows.
    "ListPredefinedRoles": (),
    "GetPredefinedRole": (),
    "QueryTestablePermissions": (),
}

_API_KEYS = {
    # A key has roles: who makes one gives them away.
    "CreateApiKey": (Need("apikeys.keys.create"), Need("resourcemanager.projects.setIamPolicy")),
    "ListApiKeys": (Need("apikeys.keys.list"),),
    "GetApiKey": (Need("apikeys.keys.get", on=On.PROJECT),),
    "DeleteApiKey": (Need("apikeys.keys.delete", on=On.PROJECT),),
}

_QUOTAS = {
    "GetQuotas": (Need("serviceusage.quotas.get"),),
    # A tenant's owner is kept by them: whoever has the installation sets them.
    "UpdateQuotas": (Need("serviceusage.quotas.update", on=On.INSTALLATION),),
}

_SETTINGS = {
    "GetSettings": (Need("pubsub.topics.list"),),
    # Whoever sets the topic has messages published there.
    "UpdateSettings": (Need("pubsub.topics.update", on=On.PROJECT), Need(_PUBLISH, on=On.PROJECT)),
}

# They have no policies of their own.
_SCHEDULES = {
    "Put": (Need("pubsub.schedules.create", on=On.PROJECT),),  # and Publish's on the topic
    **{verb.title(): (Need(f"pubsub.schedules.{verb}", on=On.PROJECT),) for verb in ("get", "delete", "run")},
    **{verb: (Need("pubsub.schedules.update", on=On.PROJECT),) for verb in ("Pause", "Resume")},
}

NEEDS: Mapping[str, tuple[Need, ...]] = {
    **{f"Publisher.{name}": needs for name, needs in _PUBLISHER.items()},
    **{f"Subscriber.{name}": needs for name, needs in _SUBSCRIBER.items()},
    **{f"SchemaService.{name}": needs for name, needs in _SCHEMAS.items()},
    **{f"IAM.{name}": needs for name, needs in _IAM.items()},
    **{f"ApiKeys.{name}": needs for name, needs in _API_KEYS.items()},
    **{f"Quotas.{name}": needs for name, needs in _QUOTAS.items()},
    **{f"Settings.{name}": needs for name, needs in _SETTINGS.items()},
    "IAMPolicy.GetIamPolicy": (Need(_policies("getIamPolicy"), "resource"),),
    "IAMPolicy.SetIamPolicy": (Need(_policies("setIamPolicy"), "resource"),),
    "IAMPolicy.TestIamPermissions": (),  # tells callers of themselves alone
    "Nack": _CONSUME,
    "Reject": _CONSUME,
    "GetPushStatus": _GET_SUBSCRIPTION,
    "ListPushFailures": _UPDATE_SUBSCRIPTION,  # they quote what the endpoint has answered
    "TestPush": _UPDATE_SUBSCRIPTION,
    "PausePush": _UPDATE_SUBSCRIPTION,
    "ResumePush": _UPDATE_SUBSCRIPTION,
    "FreezeTopic": (Need("pubsub.topics.update"),),
    "UnfreezeTopic": (Need("pubsub.topics.update"),),
    "PreviewSeek": _CONSUME,  # and Seek's on a snapshot
    "UndoSeek": _CONSUME,
    "PurgeSubscription": _CONSUME,  # as a seek
    "PurgeTopic": (Need("pubsub.topics.delete"),),  # of which it has all but the name
    "ResetProject": tuple(
        Need(f"pubsub.{kind}.delete") for kind in ("topics", "subscriptions", "snapshots", "schemas")
    ),
    "PauseSubscription": _UPDATE_SUBSCRIPTION,
    "SetFilter": _UPDATE_SUBSCRIPTION,  # and TestFilter's on the topic
    "ResumeSubscription": _UPDATE_SUBSCRIPTION,
    "GetPosition": _GET_SUBSCRIPTION,
    "ListConsumers": _GET_SUBSCRIPTION,
    # Of the subscriptions of its topic those are shown that the caller may get.
    "GetMessage": (Need("pubsub.topics.attachSubscription", on=On.ABOVE),),
    "FindMessage": (Need("pubsub.topics.list", on=On.ABOVE),),  # and GetMessage's on the topic
    "ListSubscriptionMessages": _CONSUME,  # shows bodies
    "ListDeadLetters": _CONSUME,  # so does it, of what was the subscription's
    "GetSubscriptionMessage": (Need("pubsub.subscriptions.get", on=On.ABOVE),),  # no bodies
    "TailSubscription": (Need("pubsub.subscriptions.get"),),  # nor here
    "ListTopicPublishers": (Need("pubsub.topics.get"),),  # as ListTopicSubscriptions
    "ListTopicMessages": (Need("pubsub.topics.attachSubscription"),),  # as TailTopic
    "TailTopic": (Need("pubsub.topics.attachSubscription"),),  # shows bodies, as a subscription would
    "ListScheduled": (Need("pubsub.topics.attachSubscription"),),  # as ListTopicMessages
    "GetScheduled": (Need("pubsub.topics.attachSubscription", on=On.ABOVE),),  # shows a body
    # A message is taken back, or put off, of whoever published it.
    "UpdateScheduled": (Need("pubsub.topics.update", on=On.ABOVE),),
    "CancelScheduled": (Need("pubsub.topics.update", on=On.ABOVE),),
    "RetractMessages": (Need("pubsub.topics.update"),),  # as CancelScheduled
    "ReplaceMessage": (Need("pubsub.topics.update"), Need(_PUBLISH)),
    **{f"{verb}Schedule": needs for verb, needs in _SCHEDULES.items()},
    "ListSchedules": (Need("pubsub.schedules.list"),),
    "ListNextTicks": (Need("pubsub.schedules.get", on=On.PROJECT),),
    "ListScheduleTicks": (Need("pubsub.schedules.get", on=On.PROJECT),),
    "ListLag": (Need("pubsub.subscriptions.list"),),
    "Logging.ListAuditLogs": (Need("logging.privateLogEntries.list"),),
    "ValidateMessageTransform": (Need("pubsub.messageTransforms.validate"),),
    # And ListTopicMessages' or ListSubscriptionMessages' of what is named.
    "TestMessageTransforms": (Need("pubsub.messageTransforms.validate"),),
    # Of the dead-letter topic's subscriptions it touches those that the caller may consume.
    "Redrive": _CONSUME,
    "Discard": _CONSUME,  # as a redrive
    "ResendMessages": _CONSUME,  # as a seek
    "RecoverPushes": _CONSUME,  # as a redrive
    "ReplayMissingPushes": _CONSUME,  # as a seek
    "CopyTopic": (Need("pubsub.topics.attachSubscription"),),  # as a subscription, and Publish's on the target
    "ExportTopic": (Need("pubsub.topics.attachSubscription"),),  # as TailTopic
    "ImportTopic": (Need(_PUBLISH),),
    "EditDeadLetter": _CONSUME,  # as a redrive
    "Operations.ListOperations": (Need("pubsub.subscriptions.list"),),
    # Who may list a project's sees each; so does who may do what started one, who alone may end it.
    "Operations.GetOperation": (),
    "Operations.WaitOperation": (),
    "Operations.CancelOperation": (),
    "Operations.DeleteOperation": (),
    "TestFilter": (  # may show bodies
        Need(
            {"topics": "pubsub.topics.attachSubscription", "subscriptions": "pubsub.subscriptions.consume"},
        ),
    ),
}

# Of gRPC alone: no call about a resource.
FREE = frozenset({"Health.Check", "Health.Watch", "ServerReflection.ServerReflectionInfo"})
OR_UPDATE = (
    Need("pubsub.subscriptions.update", "name"),
    Need(_ACT_AS, "name", On.PUSHED_AS),
)  # of a CreateSubscription that may change one instead


def to_act_as(email: str) -> Required:
    """What it needs to have tokens of a service account sent."""
    return Required(_ACT_AS, f"{ANY_PROJECT}/serviceAccounts/{email}")


NAMELESS = {  # what gets a name in the project of another resource
    "Subscriber.CreateSubscription": "topic",
    "Subscriber.CreateSnapshot": "subscription",
}


def is_of_path(rpc: str) -> bool:
    """Whether all that it needs is on the resource in its path: known before the body of a REST call is read."""
    needs = NEEDS[rpc]
    return bool(needs) and all(not need.field for need in needs)


async def required_on(rpc: str, name: str, find_subscription: FindSubscription) -> list[Required]:
    """What a call needs on the resource that it is about.  What it needs on others `required_by` adds.

    Raises InvalidArgument for a name that cannot be, and Unavailable.
    """
    needs = NEEDS[rpc]
    if is_of_path(rpc):
        return [_required(need, name) for need in needs]
    required = []
    for need in needs[:1]:
        if need.on is On.TOPIC:
            found = await _through_subscription(need, name, find_subscription)
            required += [found] if found is not None else []
        else:
            required.append(_required(need, name))
    return required


async def required_by(
    rpc: str, request: Any, find_subscription: FindSubscription, *, or_update: bool = False
) -> list[Required]:
    """What a request needs.  Raises InvalidArgument for names that cannot be, and Unavailable."""
    required = []
    for need in (*NEEDS[rpc], *(OR_UPDATE if or_update else ())):
        if need.mask and not any(path.startswith(need.mask) for path in request.update_mask.paths):
            continue
        value = _value(request, need.field)
        if not value and need.on is On.PROJECT and rpc in NAMELESS:
            value = _value(request, NAMELESS[rpc])
        if need.on in (On.TOPIC, On.PUSHED_AS):
            found = await _through_subscription(need, value, find_subscription)
            required += [found] if found is not None else []
        elif value or need is NEEDS[rpc][0]:
            required.append(_required(need, value))
    return required


def _value(request: Any, path: str) -> str:
    value = request
    for part in path.split("."):
        value = getattr(value, part)
    return value  # type: ignore[no-any-return]


def _required(need: Need, name: str) -> Required:
    if need.on is On.ACCOUNT:
        return to_act_as(name)
    if need.on is On.ABOVE:
        name = name.rsplit("/", 2)[0]
    if need.on is On.INSTALLATION:
        return Required(str(need.permission), ABOVE_PROJECTS, name)
    parts = name.split("/")
    collection = parts[2] if len(parts) > 2 else ""
    if collection == "schemas":
        name = name.partition("@")[0]  # its revisions have no policies of their own
    if isinstance(need.permission, str):
        permission = need.permission
        _check(name, permission, need.on)
    else:
        check_shape(name, collection if collection in _CHECKED else "") if collection != "serviceAccounts" else None
        permission = need.permission.get(collection, "")
    return Required(permission, project_of(f"{name}/") if need.on is On.PROJECT else name)


_CHECKED = frozenset({"topics", "subscriptions", "snapshots", "schemas"})


def _check(name: str, permission: str, on: On) -> None:
    """Raises InvalidArgument for a name that nothing of that kind can have, before it is looked at further."""
    parts = name.split("/")
    if permission.startswith("pubsub."):
        collection = parts[2] if on is On.PROJECT and len(parts) == 4 else permission.split(".")[1]
        check_shape(name, "" if len(parts) <= 2 else collection)


async def _through_subscription(need: Need, name: str, find_subscription: FindSubscription) -> Required | None:
    check_shape(name, "subscriptions")
    permission = str(need.permission)
    try:
        subscription = await find_subscription(name)
    except NotFound:
        return Required(permission, name) if need.on is On.TOPIC else None
    if need.on is On.TOPIC:
        has_topic = subscription.topic.startswith("projects/")
        return Required(permission, subscription.topic if has_topic else name, name)
    token = subscription.push_config.oidc_token
    if token is None or not token.service_account_email:
        return None
    return to_act_as(token.service_account_email)
