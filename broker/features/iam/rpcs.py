"""The rows of the table of calls for access policies, callers, service accounts, roles and API keys."""

from collections.abc import Sequence
from functools import partial

from broker.access.sessions.sessions import Sessions
from broker.api.permissions import NOTHING, Need, Needs, On, policy_permissions
from broker.api.rest.resource_handler import WHOLE
from broker.api.rest.routes import Rest
from broker.api.row import (
    API_KEY,
    PAGE,
    PROJECT,
    ROLE,
    SCHEMA,
    SERVICE_ACCOUNT,
    SNAPSHOT,
    SUBSCRIPTION,
    TOPIC,
    Http,
    Row,
    about_resource,
)
from broker.api.rpc import Audit, Kind, Size
from broker.features.iam import (
    account_rest,
    api_key_rest,
    explain_rest,
    policy_calls,
    role_rest,
    sign_in_rest,
    whoami_rest,
)
from broker.features.iam.account_service import ServiceAccountService
from broker.features.iam.api_key_service import ApiKeyService
from broker.features.iam.policy_service import PolicyService
from broker.features.iam.role_service import RoleService
from broker.model.preview import SAFEGUARDS


def make_rpcs(
    *,
    policies: PolicyService,
    accounts: ServiceAccountService,
    roles: RoleService,
    api_keys: ApiKeyService,
    sessions: Sessions | None,
    has_console: bool,
) -> Sequence[Row]:
    # fmt: off
    return [
        about_resource(
            name="IAMPolicy.GetIamPolicy", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need(policy_permissions("getIamPolicy"), "resource")),
            handler=partial(policy_calls.get_iam_policy, policies), target="resource",
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
            handler=partial(policy_calls.set_iam_policy, policies), target="resource",
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
            handler=partial(policy_calls.test_iam_permissions, policies), target="resource",
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
            rest=[
                Rest(
                    "POST", f"{PROJECT}:explainAccess", "ExplainAccess",
                    partial(explain_rest.explain_access, policies), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.WhoAmI", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # tells callers about themselves alone
            rest=[Rest("GET", "whoami", "WhoAmI", whoami_rest.who_am_i, ())],
            grpc=[],
        ),
        Row(
            name="IAM.CreateSignInLink", kind=Kind.CHANGE, size=Size.SMALL, audit=Audit.CHANGE, starts=None,
            needs=NOTHING,  # the link can do what its caller can do
            rest=[
                Rest(
                    "POST", "signInLinks", "CreateSignInLink",
                    partial(sign_in_rest.create_sign_in_link, sessions, has_console), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.CreateServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.create")),
            rest=[
                Rest(
                    "POST", f"{PROJECT}/serviceAccounts", "CreateServiceAccount",
                    partial(account_rest.create_service_account, accounts), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.ListServiceAccounts", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.list", listed="serviceAccounts")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/serviceAccounts", "ListServiceAccounts",
                    partial(account_rest.list_service_accounts, accounts), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.GetServiceAccount", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.get")),
            rest=[
                Rest(
                    "GET", SERVICE_ACCOUNT, "GetServiceAccount",
                    partial(account_rest.get_service_account, accounts), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.DeleteServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.delete")),
            rest=[
                Rest(
                    "DELETE", SERVICE_ACCOUNT, "DeleteServiceAccount",
                    partial(account_rest.delete_service_account, accounts), SAFEGUARDS,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.DisableServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.disable")),
            rest=[
                Rest(
                    "POST", f"{SERVICE_ACCOUNT}:disable", "DisableServiceAccount",
                    partial(account_rest.disable_service_account, accounts), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.EnableServiceAccount", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.serviceAccounts.enable")),
            rest=[
                Rest(
                    "POST", f"{SERVICE_ACCOUNT}:enable", "EnableServiceAccount",
                    partial(account_rest.enable_service_account, accounts), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.CreateServiceAccountKey",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need("iam.serviceAccountKeys.create")),
            rest=[
                Rest(
                    "POST", f"{SERVICE_ACCOUNT}/keys", "CreateServiceAccountKey",
                    partial(account_rest.create_key, accounts), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.ListServiceAccountKeys", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.serviceAccountKeys.list")),
            rest=[
                Rest(
                    "GET", f"{SERVICE_ACCOUNT}/keys", "ListServiceAccountKeys",
                    partial(account_rest.list_keys, accounts), ("keyTypes",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.GetServiceAccountKey", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.serviceAccountKeys.get")),
            rest=[
                Rest(
                    "GET", f"{SERVICE_ACCOUNT}/keys/*", "GetServiceAccountKey",
                    partial(account_rest.get_key, accounts), ("publicKeyType",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.DeleteServiceAccountKey",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.serviceAccountKeys.delete")),
            rest=[
                Rest(
                    "DELETE", f"{SERVICE_ACCOUNT}/keys/*", "DeleteServiceAccountKey",
                    partial(account_rest.delete_key, accounts), SAFEGUARDS,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.CreateRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need("iam.roles.create")),
            rest=[Rest("POST", f"{PROJECT}/roles", "CreateRole", partial(role_rest.create_role, roles), ())],
            grpc=[],
        ),
        Row(
            name="IAM.ListRoles", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.roles.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/roles", "ListRoles",
                    partial(role_rest.list_roles, roles), (*PAGE, "showDeleted", "view"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.GetRole", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("iam.roles.get")),
            rest=[Rest("GET", ROLE, "GetRole", partial(role_rest.get_role, roles), ())],
            grpc=[],
        ),
        Row(
            name="IAM.UpdateRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(Need("iam.roles.update")),
            rest=[Rest("PATCH", ROLE, "UpdateRole", partial(role_rest.update_role, roles), ("updateMask",))],
            grpc=[],
        ),
        Row(
            name="IAM.DeleteRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.roles.delete")),
            rest=[
                Rest("DELETE", ROLE, "DeleteRole", partial(role_rest.delete_role, roles), ("etag", *SAFEGUARDS)),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.UndeleteRole", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("iam.roles.undelete")),
            rest=[Rest("POST", f"{ROLE}:undelete", "UndeleteRole", partial(role_rest.undelete_role, roles), ())],
            grpc=[],
        ),
        Row(
            name="IAM.ListPredefinedRoles", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # every broker of this version has the same
            rest=[
                Rest(
                    "GET", "roles", "ListPredefinedRoles",
                    partial(role_rest.list_predefined_roles, roles), (*PAGE, "parent", "showDeleted", "view"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="IAM.GetPredefinedRole", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # as ListPredefinedRoles
            rest=[Rest("GET", "roles/*", "GetPredefinedRole", partial(role_rest.get_predefined_role, roles), ())],
            grpc=[],
        ),
        Row(
            name="IAM.QueryTestablePermissions", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # as ListPredefinedRoles
            rest=[
                Rest(
                    "POST", "permissions:queryTestablePermissions", "QueryTestablePermissions",
                    role_rest.query_testable_permissions, (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ApiKeys.CreateApiKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            # A key has roles: whoever creates one grants them.
            needs=Needs(Need("apikeys.keys.create"), Need("resourcemanager.projects.setIamPolicy")),
            rest=[
                Rest(
                    "POST", f"{PROJECT}/apiKeys", "CreateApiKey",
                    partial(api_key_rest.create_api_key, api_keys), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ApiKeys.ListApiKeys", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("apikeys.keys.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/apiKeys", "ListApiKeys",
                    partial(api_key_rest.list_api_keys, api_keys), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ApiKeys.GetApiKey", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("apikeys.keys.get", on=On.PROJECT)),
            rest=[Rest("GET", API_KEY, "GetApiKey", partial(api_key_rest.get_api_key, api_keys), ())],
            grpc=[],
        ),
        Row(
            name="ApiKeys.DeleteApiKey", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("apikeys.keys.delete", on=On.PROJECT)),
            rest=[
                Rest(
                    "DELETE", API_KEY, "DeleteApiKey",
                    partial(api_key_rest.delete_api_key, api_keys), SAFEGUARDS,
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
