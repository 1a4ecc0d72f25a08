"""The permissions that this broker checks, and the predefined roles that contain them, under Google's names.

https://cloud.google.com/iam/docs/roles-permissions/pubsub, …/iam, …/resourcemanager and …/serviceusage list them.
"""

from collections.abc import Mapping


def _names(prefix: str, verbs: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{verb}" for verb in verbs.split())


_PUBSUB_VIEW = (
    _names("pubsub.schemas", "get list listRevisions validate")
    | _names("pubsub.messageTransforms", "validate")
    | _names("pubsub.linkTemplates", "get list")
    | _names("pubsub.maskingRules", "get list")
    | _names("pubsub.messageTemplates", "get list")
    | _names("pubsub.savedViews", "get list")
    | _names("pubsub.schedules", "get list")
    | _names("pubsub.snapshots", "get list")
    | _names("pubsub.subscriptions", "get list")
    | _names("pubsub.topics", "get list")
)
_PUBSUB_EDIT = (
    _PUBSUB_VIEW
    | _names("pubsub.schemas", "attach commit create delete rollback")
    | _names("pubsub.linkTemplates", "create delete update")
    | _names("pubsub.messageTemplates", "create delete update")
    | _names("pubsub.savedViews", "create delete update")
    | _names("pubsub.schedules", "create delete run update")
    | _names("pubsub.snapshots", "create delete seek update")
    | _names("pubsub.subscriptions", "consume create delete update")
    | _names("pubsub.topics", "attachSubscription create delete detachSubscription publish update")
)
_PUBSUB_POLICIES = frozenset(
    f"pubsub.{collection}.{verb}"
    for collection in ("schemas", "snapshots", "subscriptions", "topics")
    for verb in ("getIamPolicy", "setIamPolicy")
)
_MASKING = _names("pubsub.maskingRules", "create delete update")
_MESSAGES = _names("pubsub.messages", "view viewAttributes viewMasked")
_PROJECT = frozenset({"resourcemanager.projects.get"})
_PROJECT_POLICIES = _names("resourcemanager.projects", "get getIamPolicy setIamPolicy")
_ACCOUNTS_VIEW = _names("iam.serviceAccounts", "get list") | _names("iam.serviceAccountKeys", "get list")
_ACCOUNTS_ADMIN = _names("iam.serviceAccounts", "create delete disable enable get getIamPolicy list setIamPolicy")
_KEYS_ADMIN = _names("iam.serviceAccountKeys", "create delete get list") | _names("iam.serviceAccounts", "get list")
_ACT_AS = _names("iam.serviceAccounts", "actAs get list")
_ROLES_VIEW = _names("iam.roles", "get list")
_ROLES_ADMIN = _names("iam.roles", "create delete get list undelete update")
_API_KEYS_VIEW = _names("apikeys.keys", "get list")
_API_KEYS_ADMIN = _names("apikeys.keys", "create delete get list")

_QUOTAS_VIEW = _names("serviceusage.quotas", "get")
_QUOTAS_ADMIN = _names("serviceusage.quotas", "get update")

_METRICS = _names("monitoring.timeSeries", "list")
_BROKERS_VIEW = _names("pubsub.brokers", "get")

_VIEWER = (
    _PUBSUB_VIEW
    | _ACCOUNTS_VIEW
    | _ROLES_VIEW
    | _API_KEYS_VIEW
    | _QUOTAS_VIEW
    | _METRICS
    | _names("pubsub.schemas", "attach getIamPolicy")
    | _names("pubsub.snapshots", "seek")  # without what consumes it allows nothing
    | _names("resourcemanager.projects", "get getIamPolicy")
    | _names("iam.serviceAccounts", "getIamPolicy")
)
_EDITOR = (
    _VIEWER
    | _PUBSUB_EDIT
    | _API_KEYS_ADMIN
    | _KEYS_ADMIN
    | _QUOTAS_ADMIN
    | _names("iam.serviceAccounts", "actAs create delete disable enable")
)

_LOGS = _names("logging.privateLogEntries", "list")

PERMISSIONS = (  # all that there are
    _EDITOR
    | _PUBSUB_POLICIES
    | _MASKING
    | _MESSAGES
    | _PROJECT_POLICIES
    | _ACCOUNTS_ADMIN
    | _ROLES_ADMIN
    | _LOGS
    | _BROKERS_VIEW
)
OWNER = "roles/owner"

PREDEFINED_ROLES: Mapping[str, frozenset[str]] = {
    OWNER: PERMISSIONS,
    "roles/editor": _EDITOR,
    "roles/viewer": _VIEWER,
    "roles/pubsub.admin": _PUBSUB_EDIT | _PUBSUB_POLICIES | _MASKING | _MESSAGES | _PROJECT | _QUOTAS_VIEW,
    "roles/pubsub.editor": _PUBSUB_EDIT | _PROJECT | _QUOTAS_VIEW,
    "roles/pubsub.viewer": _PUBSUB_VIEW | _PROJECT | _QUOTAS_VIEW,
    "roles/pubsub.publisher": frozenset({"pubsub.topics.publish"}),
    "roles/pubsub.subscriber": frozenset(
        {"pubsub.snapshots.seek", "pubsub.subscriptions.consume", "pubsub.topics.attachSubscription"}
    ),
    # Not Google's: to look at messages without receiving them.
    "roles/pubsub.messageViewer": _names("pubsub.messages", "viewMasked") | _PUBSUB_VIEW | _PROJECT,
    "roles/pubsub.messageAttributesViewer": _names("pubsub.messages", "viewAttributes") | _PUBSUB_VIEW | _PROJECT,
    "roles/iam.roleAdmin": _ROLES_ADMIN | _PROJECT_POLICIES - {"resourcemanager.projects.setIamPolicy"},
    "roles/iam.roleViewer": _ROLES_VIEW | _PROJECT_POLICIES - {"resourcemanager.projects.setIamPolicy"},
    "roles/iam.serviceAccountAdmin": _ACCOUNTS_ADMIN | _PROJECT,
    "roles/iam.serviceAccountKeyAdmin": _KEYS_ADMIN | _PROJECT,
    "roles/iam.serviceAccountUser": _ACT_AS | _PROJECT,
    "roles/iam.serviceAccountViewer": _ACCOUNTS_VIEW | {"iam.serviceAccounts.getIamPolicy"} | _PROJECT,
    "roles/logging.privateLogViewer": _LOGS | _PROJECT,
    "roles/monitoring.viewer": _METRICS | _PROJECT,
    "roles/resourcemanager.projectIamAdmin": _PROJECT_POLICIES,
    "roles/servicemanagement.quotaAdmin": _QUOTAS_ADMIN | _PROJECT,
    "roles/servicemanagement.quotaViewer": _QUOTAS_VIEW | _PROJECT,
    "roles/serviceusage.apiKeysAdmin": _API_KEYS_ADMIN,
    "roles/serviceusage.apiKeysViewer": _API_KEYS_VIEW,
}
