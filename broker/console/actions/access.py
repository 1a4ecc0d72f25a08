"""Actions on access: policies, service accounts and their keys, API keys, and share links."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence

from broker.access.principals.policy import canonical_member
from broker.client.policies import with_member, without_member
from broker.client.stop import Misuse
from broker.client.words import duration_text
from broker.console.actions import reading
from broker.console.actions.action import (
    CURRENT,
    Action,
    Call,
    Change,
    Field,
    Json,
    Receipt,
    Secret,
    Target,
    Values,
    Weight,
    above,
    project_of,
)
from broker.console.actions.common import (
    PROJECT,
    SCHEMA,
    SNAPSHOT,
    SUBSCRIPTION,
    TOPIC,
    chosen,
    command,
    deleting,
    done,
    in_project,
    posting,
)

_ACCOUNT = "projects/{project}/serviceAccounts/{account}"
_ACCOUNT_KEY = f"{_ACCOUNT}/keys/{{key}}"
_API_KEY = "projects/{project}/apiKeys/{key}"
_SHARE_LINK = f"{SUBSCRIPTION}/shareLinks/{{link}}"
_VERSION = 3  # of policies, with conditions, which are kept as they are
_HAS_GET = (TOPIC, SUBSCRIPTION, SNAPSHOT, SCHEMA)  # whose policies are read by GET

Edit = Callable[[Sequence[Json], str, str], list[Json]]


def _member(given: str, _: str) -> str:
    return canonical_member(given)


def _role(given: str, label: str) -> str:
    if "/" not in given:
        raise Misuse(f"{label} must be a whole name, such as roles/pubsub.subscriber, not {given!r}")
    return given


_MEMBER = Field(
    name="member",
    label="Principal",
    required=True,
    read=_member,
    placeholder="user:ana@example.com",
    help="user:, group: or serviceAccount: with an address, domain:, or allUsers.",
)
_ROLE = Field(
    name="role",
    label="Role",
    required=True,
    read=_role,
    placeholder="roles/pubsub.subscriber",
    help="A predefined one, or one of the project with its full name.",
)


def _reads_policy(on: str) -> Callable[[Target, Mapping[str, str]], Call]:
    def call(target: Target, _: Mapping[str, str]) -> Call:
        path = f"{target.name}:getIamPolicy"
        if on in _HAS_GET:
            return Call("GET", path, query={"options.requestedPolicyVersion": str(_VERSION)})
        return Call("POST", path, {"options": {"requestedPolicyVersion": _VERSION}})

    return call


def _sets_policy(edit: Edit) -> Callable[[Target, Values], Call]:
    def call(target: Target, values: Values) -> Call:
        policy = values[CURRENT]
        bindings = edit(policy.get("bindings", ()), values["role"], values["member"])
        return Call("POST", f"{target.name}:setIamPolicy", {"policy": {**policy, "bindings": bindings}})

    return call


def _gains_and_losses(edit: Edit) -> Callable[[Json, Values], Sequence[Change]]:
    def changes(policy: Json, values: Values) -> Sequence[Change]:
        before = _granted(policy.get("bindings", ()))
        after = _granted(edit(policy.get("bindings", ()), values["role"], values["member"]))
        return [
            *(Change("-", f"{member} has {role}") for member, role in sorted(before - after)),
            *(Change("+", f"{member} has {role}") for member, role in sorted(after - before)),
        ]

    return changes


def _granted(bindings: Sequence[Json]) -> set[tuple[str, str]]:
    return {(member, one["role"]) for one in bindings for member in one["members"] if not one.get("condition")}


def _policy_page(target: Target) -> str:
    """Return the page that shows the policies, for a project, or that of the resource."""
    return f"{target.name}/access" if target.name == target.project else target.name


def _policy_actions(on: str, permission: str) -> Sequence[Action]:
    collection = on.split("/")[-2]

    def change(
        verb: str, edit: Edit, *, title: str, label: str, explanation: str, said: str, command_verb: str
    ) -> Action:
        return Action(
            on=on,
            verb=verb,
            rpc="IAMPolicy.SetIamPolicy",
            permission=permission,
            title=title,
            label=label,
            help=explanation,
            fields=[_MEMBER, _ROLE],
            reads=_reads_policy(on),
            changes=_gains_and_losses(edit),
            shown_on=("/access",) if on == PROJECT else ("",),
            call=_sets_policy(edit),
            receipt=lambda target, values, _: Receipt(
                said.format(member=values["member"], role=values["role"], target=target.id), _policy_page(target)
            ),
            command=command(f"auth policy {command_verb} {collection}/{{target}}", role="role", member="member"),
            page=_policy_page,
        )

    return [
        change(
            "grant",
            with_member,
            title="Give somebody a role",
            label="Give the role",
            explanation="It holds for the resource and all that is in it.",
            said="{member} has {role} on {target}.",
            command_verb="add",
        ),
        change(
            "revoke",
            without_member,
            title="Take a role from somebody",
            label="Take the role",
            explanation="Other policies, such as the project's, may still give it.",
            said="{member} has {role} on {target} no more.",
            command_verb="remove",
        ),
    ]


def _create_account(target: Target, values: Values) -> Call:
    account = chosen(values, "displayName", "description")
    return Call("POST", f"{target.name}/serviceAccounts", {"accountId": values["id"], "serviceAccount": account})


def _key_file(target: Target, _: Values, answer: Json) -> Secret:
    return Secret(
        b64decode(answer["privateKeyData"]).decode(),
        f"Key of {target.id}",
        "This is the key file, for GOOGLE_APPLICATION_CREDENTIALS.",
    )


def _api_key(_target: Target, _values: Values, answer: Json) -> Secret:
    return Secret(answer["keyString"], "API key", "This is the key, for the header X-Goog-Api-Key.")


def _share(target: Target, values: Values) -> Call:
    permissions = [one for one in ("RESEND", "RECOVER") if values.get(one.lower())]
    body: Json = {"permissions": ["VIEW_PUSH_ATTEMPTS", *permissions], **chosen(values, "ttl")}
    return Call("POST", f"{target.name}:createShareLink", body)


def _share_command(target: Target, values: Values) -> str:
    permitted = "".join(f" --permit {one}" for one in ("resend", "recover") if values.get(one))
    return command(f"share create {{target}}{permitted}", ttl="ttl")(target, values)


def _link(target: Target, _: Values, answer: Json) -> Secret:
    return Secret(
        answer["path"],
        f"Link to the pushes of {target.id}",
        f"Everybody who has this link sees the pushes until {answer['expireTime']}.",
        is_path=True,
    )


def _no_receipt(target: Target, _values: Values, _answer: Json) -> Receipt:
    """The answer is shown once, in place of a receipt."""
    return Receipt("", target.name)


ACTIONS: Sequence[Action] = [
    *_policy_actions(PROJECT, "resourcemanager.projects.setIamPolicy"),
    *_policy_actions(TOPIC, "pubsub.topics.setIamPolicy"),
    *_policy_actions(SUBSCRIPTION, "pubsub.subscriptions.setIamPolicy"),
    *_policy_actions(SNAPSHOT, "pubsub.snapshots.setIamPolicy"),
    *_policy_actions(SCHEMA, "pubsub.schemas.setIamPolicy"),
    *_policy_actions(_ACCOUNT, "iam.serviceAccounts.setIamPolicy"),
    Action(
        on=PROJECT,
        verb="createServiceAccount",
        rpc="IAM.CreateServiceAccount",
        permission="iam.serviceAccounts.create",
        title="Create a service account",
        label="Create the service account",
        help="It may do nothing until somebody gives it a role.",
        shown_on=("/serviceAccounts",),
        fields=[
            Field(name="id", label="Id", required=True, placeholder="billing"),
            Field(name="displayName", label="Name"),
            Field(name="description", label="Description"),
        ],
        call=_create_account,
        receipt=lambda target, values, answer: Receipt(f"Created {answer['email']}.", answer["name"]),
        command=command("auth accounts create {id}", displayName="display-name", description="description"),
        page=in_project("serviceAccounts"),
    ),
    Action(
        on=_ACCOUNT,
        verb="createKey",
        rpc="IAM.CreateServiceAccountKey",
        permission="iam.serviceAccountKeys.create",
        title="Create a key",
        label="Create the key",
        help="The key file is shown once.",
        call=lambda target, _: Call("POST", f"{target.name}/keys"),
        secret=_key_file,
        receipt=_no_receipt,
        command=command("auth keys create {target} --output FILE"),
    ),
    Action(
        on=_ACCOUNT,
        verb="disable",
        rpc="IAM.DisableServiceAccount",
        permission="iam.serviceAccounts.disable",
        title="Disable",
        label="Disable the account",
        help="Its keys and tokens prove nothing until it is enabled.",
        applies=lambda data: not data.get("account", {}).get("disabled", False),
        call=posting("disable"),
        receipt=done("Disabled {target}.", undo="enable"),
        command=command("auth accounts disable {target}"),
    ),
    Action(
        on=_ACCOUNT,
        verb="enable",
        rpc="IAM.EnableServiceAccount",
        permission="iam.serviceAccounts.enable",
        title="Enable",
        label="Enable the account",
        at_once=True,
        applies=lambda data: bool(data.get("account", {}).get("disabled", False)),
        call=posting("enable"),
        receipt=done("Enabled {target}.", undo="disable"),
        command=command("auth accounts enable {target}"),
    ),
    Action(
        on=_ACCOUNT,
        verb="delete",
        rpc="IAM.DeleteServiceAccount",
        permission="iam.serviceAccounts.delete",
        title="Delete the service account",
        label="Delete the service account",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Its keys and tokens prove nothing from then on.",
        call=deleting,
        receipt=done("Deleted service account {target}.", path=in_project("serviceAccounts")),
        command=command("auth accounts delete {target} --yes"),
    ),
    Action(
        on=_ACCOUNT_KEY,
        verb="delete",
        rpc="IAM.DeleteServiceAccountKey",
        permission="iam.serviceAccountKeys.delete",
        title="Delete the key",
        label="Delete the key",
        weight=Weight.LOSSY,
        has_preview=True,
        shown_on=(),
        needed_on=above,
        call=deleting,
        receipt=done("Deleted key {target}.", path=above),
        command=lambda target, values: command(f"auth keys delete {target.parts['account']} {{target}} --yes")(
            target, values
        ),
        page=above,
    ),
    Action(
        on=PROJECT,
        verb="createApiKey",
        rpc="ApiKeys.CreateApiKey",
        permission="apikeys.keys.create",
        title="Create an API key",
        label="Create the API key",
        help="The key is shown once.",
        shown_on=("/apiKeys",),
        fields=[
            Field(name="displayName", label="Name"),
            Field(name="roles", label="Roles", kind="area", required=True, read=reading.lines, help="One a line."),
            Field(
                name="resources",
                label="On",
                kind="area",
                read=reading.lines,
                help="One a line. Empty: the project.",
            ),
        ],
        call=lambda target, values: Call(
            "POST", f"{target.name}/apiKeys", chosen(values, "displayName", "roles", "resources")
        ),
        secret=_api_key,
        receipt=_no_receipt,
        command=command("auth api-keys create", displayName="display-name", roles="role", resources="resource"),
        page=in_project("apiKeys"),
    ),
    Action(
        on=_API_KEY,
        verb="delete",
        rpc="ApiKeys.DeleteApiKey",
        permission="apikeys.keys.delete",
        title="Delete the API key",
        label="Delete the API key",
        weight=Weight.LOSSY,
        has_preview=True,
        shown_on=(),
        needed_on=project_of,
        help="Callers with this key are refused from then on.",
        call=deleting,
        receipt=done("Deleted API key {target}.", path=in_project("apiKeys")),
        command=command("auth api-keys delete {target} --yes"),
        page=in_project("apiKeys"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="createShareLink",
        rpc="CreateShareLink",
        permission="pubsub.subscriptions.setIamPolicy",
        title="Share the pushes by a link",
        label="Create the link",
        help="For the owner of the endpoint, who needs no credential. The link is shown once.",
        applies=lambda data: "circuitBreaker" in data.get("status", {}),
        shown_on=("/pushAttempts",),
        fields=[
            Field(
                name="ttl",
                label="Works for",
                read=duration_text,
                placeholder="7d",
                help="A minute to 30 days. Empty: seven days.",
            ),
            Field(name="resend", label="Its holder may resend messages", kind="check"),
            Field(name="recover", label="Its holder may recover failed pushes", kind="check"),
        ],
        call=_share,
        secret=_link,
        receipt=_no_receipt,
        command=_share_command,
        page=lambda target: f"{target.name}/pushAttempts",
    ),
    Action(
        on=_SHARE_LINK,
        verb="delete",
        rpc="DeleteShareLink",
        permission="pubsub.subscriptions.setIamPolicy",
        title="End the link",
        label="End the link",
        weight=Weight.LOSSY,
        has_preview=True,
        shown_on=(),
        needed_on=above,
        help="It opens no page from then on.",
        call=deleting,
        receipt=done("Ended link {target}.", path=lambda target: f"{above(target)}/pushAttempts"),
        command=lambda target, values: command(f"share delete {target.parts['subscription']} {{target}}")(
            target, values
        ),
        page=lambda target: f"{above(target)}/pushAttempts",
    ),
]
