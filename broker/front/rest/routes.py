"""The REST surface: one row per RPC.  Those about resources have theirs in front/resources/rpcs.py.

A path is written with `*` for each resource id.  `:verb` on the last id is Google's spelling; `/verb` is the
plain spelling of the same call (A12) and stands in a row of its own.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from broker.front.resources.rpcs import RPCS, SUBSCRIPTION, TOPIC
from broker.front.rest.call import Call
from broker.front.rest.handlers import (
    acknowledge,
    api_keys,
    audit_logs,
    consumers,
    copies,
    dead_letters,
    discards,
    edits,
    exports,
    fates,
    filter_changes,
    filters,
    freezes,
    lag,
    operations,
    pauses,
    positions,
    publish,
    pull,
    push_replays,
    pushes,
    quotas,
    resends,
    resets,
    retractions,
    roles,
    schedule,
    schedules,
    seeks,
    settings,
    standing_messages,
    tail,
    topic_messages,
    topic_publishers,
    transforms,
)
from broker.front.rest.handlers import service_accounts as accounts
from broker.front.rest.resources import query_parameters, resource_handler

Handler = Callable[[Call], Awaitable[bytes]]

SERVICE_ACCOUNT = "projects/*/serviceAccounts/*"
ROLE = "projects/*/roles/*"
OPERATION = "projects/*/operations/*"
SCHEDULE = "projects/*/schedules/*"

_PAGE = ("pageSize", "pageToken")
_OF_ROLES = (*_PAGE, "view", "showDeleted")
_OF_PULL = ("maxMessages", "returnImmediately")


class Route(NamedTuple):
    """`rpc` is the name in Google's service definition; several routes may serve one RPC.

    `parameters`: what the query may have, in camelCase (query_parameters.py).
    """

    method: str
    path: str
    rpc: str
    handler: Handler
    parameters: Collection[str] = ()


_ACCOUNTS = [
    Route("POST", "projects/*/serviceAccounts", "IAM.CreateServiceAccount", accounts.create_service_account),
    Route("GET", "projects/*/serviceAccounts", "IAM.ListServiceAccounts", accounts.list_service_accounts, _PAGE),
    Route("GET", SERVICE_ACCOUNT, "IAM.GetServiceAccount", accounts.get_service_account),
    Route("DELETE", SERVICE_ACCOUNT, "IAM.DeleteServiceAccount", accounts.delete_service_account),
    Route("POST", f"{SERVICE_ACCOUNT}:disable", "IAM.DisableServiceAccount", accounts.disable_service_account),
    Route("POST", f"{SERVICE_ACCOUNT}:enable", "IAM.EnableServiceAccount", accounts.enable_service_account),
    Route("POST", f"{SERVICE_ACCOUNT}/keys", "IAM.CreateServiceAccountKey", accounts.create_key),
    Route("GET", f"{SERVICE_ACCOUNT}/keys", "IAM.ListServiceAccountKeys", accounts.list_keys, ("keyTypes",)),
    Route("GET", f"{SERVICE_ACCOUNT}/keys/*", "IAM.GetServiceAccountKey", accounts.get_key, ("publicKeyType",)),
    Route("DELETE", f"{SERVICE_ACCOUNT}/keys/*", "IAM.DeleteServiceAccountKey", accounts.delete_key),
]

_ROLES = [
    Route("POST", "projects/*/roles", "IAM.CreateRole", roles.create_role),
    Route("GET", "projects/*/roles", "IAM.ListRoles", roles.list_roles, _OF_ROLES),
    Route("GET", ROLE, "IAM.GetRole", roles.get_role),
    Route("PATCH", ROLE, "IAM.UpdateRole", roles.update_role, ("updateMask",)),
    Route("DELETE", ROLE, "IAM.DeleteRole", roles.delete_role, ("etag",)),
    Route("POST", f"{ROLE}:undelete", "IAM.UndeleteRole", roles.undelete_role),
    Route("GET", "roles", "IAM.ListPredefinedRoles", roles.list_predefined_roles, (*_OF_ROLES, "parent")),
    Route("GET", "roles/*", "IAM.GetPredefinedRole", roles.get_predefined_role),
    Route(
        "POST",
        "permissions:queryTestablePermissions",
        "IAM.QueryTestablePermissions",
        roles.query_testable_permissions,
    ),
]

_API_KEYS = [
    Route("POST", "projects/*/apiKeys", "ApiKeys.CreateApiKey", api_keys.create_api_key),
    Route("GET", "projects/*/apiKeys", "ApiKeys.ListApiKeys", api_keys.list_api_keys, _PAGE),
    Route("GET", "projects/*/apiKeys/*", "ApiKeys.GetApiKey", api_keys.get_api_key),
    Route("DELETE", "projects/*/apiKeys/*", "ApiKeys.DeleteApiKey", api_keys.delete_api_key),
]

_QUOTAS = [
    Route("GET", "projects/*/quotas", "Quotas.GetQuotas", quotas.get_quotas),
    Route("PATCH", "projects/*/quotas", "Quotas.UpdateQuotas", quotas.update_quotas),
]

_SETTINGS = [
    Route("GET", "projects/*/settings", "Settings.GetSettings", settings.get_settings),
    Route("PATCH", "projects/*/settings", "Settings.UpdateSettings", settings.update_settings),
]

_OPERATIONS = [  # extensions (G1)
    Route("GET", "projects/*/operations", "Operations.ListOperations", operations.list_operations, _PAGE),
    Route("GET", OPERATION, "Operations.GetOperation", operations.get_operation),
    Route("DELETE", OPERATION, "Operations.DeleteOperation", operations.delete_operation),
    Route("POST", f"{OPERATION}:cancel", "Operations.CancelOperation", operations.cancel_operation),
    Route("POST", f"{OPERATION}:wait", "Operations.WaitOperation", operations.wait_operation),
]

_SCHEDULES = [  # extensions (J2)
    Route("GET", "projects/*/schedules", "ListSchedules", schedules.list_schedules, _PAGE),
    Route("PUT", SCHEDULE, "PutSchedule", schedules.put_schedule),
    Route("GET", SCHEDULE, "GetSchedule", schedules.get_schedule),
    Route("DELETE", SCHEDULE, "DeleteSchedule", schedules.delete_schedule),
    Route("POST", f"{SCHEDULE}:pause", "PauseSchedule", schedules.pause_schedule),
    Route("POST", f"{SCHEDULE}:resume", "ResumeSchedule", schedules.resume_schedule),
    Route("POST", f"{SCHEDULE}:run", "RunSchedule", schedules.run_schedule),
    Route("GET", f"{SCHEDULE}:next", "ListNextTicks", schedules.list_next_ticks, ("pageSize",)),
    Route("GET", f"{SCHEDULE}/ticks", "ListScheduleTicks", schedules.list_schedule_ticks, ("pageSize",)),
]

ROUTES = [
    *(Route(rpc.method, rpc.path, rpc.name, resource_handler(rpc), query_parameters(rpc)) for rpc in RPCS),
    Route("POST", f"{TOPIC}:publish", "Publisher.Publish", publish.publish),
    Route("POST", f"{TOPIC}/publish", "Publisher.Publish", publish.publish),
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
    Route("POST", f"{SUBSCRIPTION}:pull", "Subscriber.Pull", pull.pull, _OF_PULL),
    Route("POST", f"{SUBSCRIPTION}/pull", "Subscriber.Pull", pull.pull, _OF_PULL),
    Route("GET", f"{SUBSCRIPTION}:pushStatus", "GetPushStatus", pushes.get_push_status),  # extensions (A8, C6)
    Route(
        "GET", f"{SUBSCRIPTION}:pushFailures", "ListPushFailures", pushes.list_push_failures, (*_PAGE, "messageId")
    ),
    Route("POST", f"{SUBSCRIPTION}:testPush", "TestPush", pushes.test_push),
    Route("POST", f"{SUBSCRIPTION}:pausePush", "PausePush", pushes.pause_push),
    Route("POST", f"{SUBSCRIPTION}:resumePush", "ResumePush", pushes.resume_push),
    Route("POST", f"{SUBSCRIPTION}:pause", "PauseSubscription", pauses.pause_subscription),  # extensions (G2)
    Route("POST", f"{SUBSCRIPTION}:resume", "ResumeSubscription", pauses.resume_subscription),
    Route("POST", f"{SUBSCRIPTION}:setFilter", "SetFilter", filter_changes.set_filter),
    Route("POST", f"{TOPIC}:freeze", "FreezeTopic", freezes.freeze_topic),
    Route("POST", f"{TOPIC}:unfreeze", "UnfreezeTopic", freezes.unfreeze_topic),
    Route("POST", f"{SUBSCRIPTION}:previewSeek", "PreviewSeek", seeks.preview_seek),
    Route("POST", f"{SUBSCRIPTION}:undoSeek", "UndoSeek", seeks.undo_seek),
    Route("POST", f"{SUBSCRIPTION}:purge", "PurgeSubscription", seeks.purge_subscription),
    Route("POST", f"{TOPIC}:purge", "PurgeTopic", seeks.purge_topic),
    Route("GET", f"{SUBSCRIPTION}/snapshot", "GetPosition", positions.get_position),  # an extension (A12)
    Route("POST", f"{TOPIC}:testFilter", "TestFilter", filters.test_filter),  # extensions (A3)
    Route("POST", f"{SUBSCRIPTION}:testFilter", "TestFilter", filters.test_filter_of_subscription),
    Route("POST", "projects/*:reset", "ResetProject", resets.reset_project),  # an extension (G2)
    Route("POST", "projects/*:validateMessageTransform", "ValidateMessageTransform", transforms.validate),
    Route("POST", "projects/*:testMessageTransforms", "TestMessageTransforms", transforms.test),
    Route("GET", f"{SUBSCRIPTION}/consumers", "ListConsumers", consumers.list_consumers, ("pageSize",)),
    Route(
        "GET",
        f"{SUBSCRIPTION}/messages",
        "ListSubscriptionMessages",
        standing_messages.list_messages,
        (*_PAGE, "state", "filter", "contains"),
    ),
    Route("GET", f"{SUBSCRIPTION}/messages/*", "GetSubscriptionMessage", fates.get_subscription_message),
    Route("GET", f"{SUBSCRIPTION}:tail", "TailSubscription", tail.tail_subscription, ("startTime",)),
    Route("GET", f"{TOPIC}:tail", "TailTopic", tail.tail_topic, ("filter",)),
    Route("GET", f"{TOPIC}:publishers", "ListTopicPublishers", topic_publishers.list_publishers, _PAGE),
    Route(
        "GET",
        f"{TOPIC}/messages",
        "ListTopicMessages",
        topic_messages.list_messages,
        (*_PAGE, "filter", "orderingKey", "startTime", "endTime", "order"),
    ),
    Route("GET", f"{TOPIC}/messages/*", "GetMessage", fates.get_message, _PAGE),
    Route("GET", f"{TOPIC}/scheduled", "ListScheduled", schedule.list_scheduled, _PAGE),  # extensions (J1)
    Route("GET", f"{TOPIC}/scheduled/*", "GetScheduled", schedule.get_scheduled),
    Route("PATCH", f"{TOPIC}/scheduled/*", "UpdateScheduled", schedule.update_scheduled, ("updateMask",)),
    Route("DELETE", f"{TOPIC}/scheduled/*", "CancelScheduled", schedule.cancel_scheduled),
    Route("GET", "projects/*/messages/*", "FindMessage", fates.find_message, _PAGE),
    Route(
        "GET",
        f"{SUBSCRIPTION}/deadLetters",
        "ListDeadLetters",
        dead_letters.list_dead_letters,
        (*_PAGE, "groupBy", "reason", "status", "hour", "attribute:*", "filter"),
    ),  # G2
    Route("GET", "projects/*/lag", "ListLag", lag.list_lag, ("pageSize",)),  # extensions (F3)
    *_ACCOUNTS,
    *_ROLES,
    *_API_KEYS,
    Route(
        "GET", "projects/*/auditLogs", "Logging.ListAuditLogs", audit_logs.list_audit_logs, (*_PAGE, "filter")
    ),  # an extension (E5)
    *_QUOTAS,
    *_SETTINGS,
    *_OPERATIONS,
    *_SCHEDULES,
    Route("POST", f"{SUBSCRIPTION}:redrive", "Redrive", operations.redrive),  # extensions (G2)
    Route("POST", f"{SUBSCRIPTION}:discard", "Discard", discards.discard),
    Route("POST", f"{SUBSCRIPTION}:resend", "ResendMessages", resends.resend),
    Route("POST", f"{SUBSCRIPTION}:recover", "RecoverPushes", push_replays.recover),
    Route("POST", f"{SUBSCRIPTION}:replayMissing", "ReplayMissingPushes", push_replays.replay_missing),
    Route("POST", f"{SUBSCRIPTION}:editDeadLetter", "EditDeadLetter", edits.edit_dead_letter),
    Route("POST", f"{TOPIC}:retract", "RetractMessages", retractions.retract),  # extensions (J6)
    Route("POST", f"{TOPIC}:replace", "ReplaceMessage", retractions.replace),
    Route("POST", f"{TOPIC}:copy", "CopyTopic", copies.copy_topic),
    Route("POST", f"{TOPIC}:export", "ExportTopic", exports.export_topic),
    Route("POST", f"{TOPIC}:import", "ImportTopic", exports.import_topic, ("importId", "part")),
]
