"""Predefined roles as the API returns them: title, description and permissions.

They have the shape of google.iam.admin.v1.Role (https://cloud.google.com/iam/docs/reference/rest/v1/roles), and
Google's titles.  Only access/principals/permissions.py defines which permissions a role has.
"""

from collections.abc import Mapping, Sequence

from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.access.principals.role import Role
from broker.model.page import Page

_ETAG = b"\0"  # Google's, of all of them: nobody changes them

_LISTED = {
    "roles/owner": ("Owner", "All that there is."),
    "roles/editor": ("Editor", "See and change everything but policies, roles and the audit log."),
    "roles/viewer": ("Viewer", "See everything but messages and the audit log."),
    "roles/pubsub.admin": ("Pub/Sub Admin", "All about topics, subscriptions and snapshots, and their policies."),
    "roles/pubsub.editor": ("Pub/Sub Editor", "Change topics, subscriptions and snapshots, publish and consume."),
    "roles/pubsub.viewer": ("Pub/Sub Viewer", "See topics, subscriptions and snapshots."),
    "roles/pubsub.publisher": ("Pub/Sub Publisher", "Publish messages on topics."),
    "roles/pubsub.subscriber": ("Pub/Sub Subscriber", "Consume messages, seek, attach subscriptions to topics."),
    "roles/pubsub.messageViewer": (
        "Pub/Sub Message Viewer",
        "See topics, subscriptions and their messages, without what masking rules hide and without receiving them.",
    ),
    "roles/pubsub.messageAttributesViewer": (
        "Pub/Sub Message Attributes Viewer",
        "See topics, subscriptions and the attributes of their messages, without their data.",
    ),
    "roles/iam.roleAdmin": ("Role Administrator", "Make, change and delete a project's own roles."),
    "roles/iam.roleViewer": ("Role Viewer", "See a project's own roles."),
    "roles/iam.serviceAccountAdmin": ("Service Account Admin", "Make and manage service accounts."),
    "roles/iam.serviceAccountKeyAdmin": ("Service Account Key Admin", "Make and delete keys of service accounts."),
    "roles/iam.serviceAccountUser": ("Service Account User", "Have pushes carry tokens of service accounts."),
    "roles/iam.serviceAccountViewer": ("View Service Accounts", "See service accounts, their keys and policies."),
    "roles/logging.privateLogViewer": ("Private Logs Viewer", "Read the audit log."),
    "roles/monitoring.viewer": ("Monitoring Viewer", "Read metrics."),
    "roles/resourcemanager.projectIamAdmin": ("Project IAM Admin", "See and set the policies of projects."),
    "roles/servicemanagement.quotaAdmin": ("Quota Administrator", "See and set quotas."),
    "roles/servicemanagement.quotaViewer": ("Quota Viewer", "See quotas and what is used of them."),
    "roles/serviceusage.apiKeysAdmin": ("API Keys Admin", "Make, see and delete API keys."),
    "roles/serviceusage.apiKeysViewer": ("API Keys Viewer", "See API keys, without what they are called with."),
}

LISTED_ROLES: Mapping[str, Role] = {
    name: Role(
        name,
        title=_LISTED[name][0],
        description=_LISTED[name][1],
        stage="GA",
        permissions=permissions,
        etag=_ETAG,
    )
    for name, permissions in sorted(PREDEFINED_ROLES.items())
}


def predefined_on(page: Page) -> Sequence[Role]:
    """Lists a page of the predefined roles, by name, and one more."""
    return [role for name, role in LISTED_ROLES.items() if name > page.after][: page.size + 1]
