"""The permissions that a call needs, each on a resource that the call names.

The rows of each `rpcs.py` list the permissions of its calls, as Google documents them
(https://cloud.google.com/pubsub/docs/access-control#required_permissions).  An extension needs the permissions of
Google's most similar call.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from broker.access.policies.authorizer import Required
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.principals.service_account import ANY_PROJECT
from broker.model.errors import NotFound
from broker.model.names import check_shape, project_of
from broker.model.subscription import Subscription

FindSubscription = Callable[[str], Awaitable[Subscription]]


class On(Enum):
    """The resource on which a permission is needed, relative to the name that a request has."""

    ITSELF = "the resource of that name"
    PROJECT = "its project"
    ABOVE = "what it is in"
    INSTALLATION = "what is above all projects"
    TOPIC = "the topic of the subscription of that name"
    ACCOUNT = "the service account with that address"
    PUSHED_AS = "the service account that pushes of the subscription of that name have now"


class Need(NamedTuple):
    """A permission on one resource.

    `permission`: by the collection of the resource, where that differs.  `field`: the path within Google's request
    to the name; empty: the resource that the call is about.  If a field other than the first is empty in a request,
    nothing is needed.  `mask`: needed only if the update mask has a path that begins so.  `listed`: the collection
    of a list in a project; callers without the permission on the project see the resources on which they have it.
    """

    permission: str | Mapping[str, str]
    field: str = ""
    on: On = On.ITSELF
    mask: str = ""
    listed: str = ""


class Needs:
    """All permissions that a call needs.

    Compared by identity, so that the gate finds what has passed by a cheap hash.
    """

    __slots__ = ("all", "are_of_path", "instead", "is_open", "listed", "named_in", "to_update")

    def __init__(
        self,
        *needs: Need,
        named_in: str = "",
        to_update: tuple[Need, ...] = (),
        is_open: bool = False,
        instead: tuple[str, ...] = (),
    ) -> None:
        """`named_in`: the field with another resource of the project, where the broker makes up the name of a new
        resource.  `to_update`: needed as well where the call changes a resource that exists instead of creating it.
        `is_open`: anybody may call without showing a credential, also where authentication is required.
        `instead`: permissions any of which suffices in place of the only need, on the same resource.  The first
        that a caller has says what the call shows (core/viewing).
        """
        assert not instead or len(needs) == 1
        self.all = needs
        self.named_in = named_in
        self.to_update = to_update
        self.instead = instead
        self.is_open = is_open
        self.listed = next((need.listed for need in needs if need.listed), "")
        # Whether all needed permissions are on the resource in the path, so that they are known before the body of
        # a REST call is read.
        self.are_of_path = bool(needs) and all(not need.field for need in needs)


ACT_AS = "iam.serviceAccounts.actAs"


def policy_permissions(verb: str) -> Mapping[str, str]:
    """Returns the permission for `verb` on policies, by the collection of the resource; "": a project."""
    own = {name: f"pubsub.{name}.{verb}" for name in ("topics", "subscriptions", "snapshots", "schemas")}
    return own | {"serviceAccounts": f"iam.serviceAccounts.{verb}", "": f"resourcemanager.projects.{verb}"}


# Permissions to look at messages without receiving them: as they are, without what masking rules hide, or without
# their data as well.
VIEW, VIEW_MASKED = "pubsub.messages.view", "pubsub.messages.viewMasked"
VIEW_ATTRIBUTES = "pubsub.messages.viewAttributes"
TO_LOOK = (VIEW, VIEW_MASKED, VIEW_ATTRIBUTES)

# The needs of several calls, and permissions that handlers check in addition.
NOTHING = Needs()
OPEN = Needs(is_open=True)
PUBLISH = Needs(Need("pubsub.topics.publish"))
GET_TOPIC = Needs(Need("pubsub.topics.get", "topic"))
UPDATE_TOPIC = Needs(Need("pubsub.topics.update"))
ATTACH = Needs(Need("pubsub.topics.attachSubscription"))
CONSUME = Needs(Need("pubsub.subscriptions.consume"))
# Of calls that show messages: on the topic, on that of a message in the path, on a subscription or a project.
LOOK = Needs(*ATTACH.all, instead=TO_LOOK)
LOOK_ABOVE = Needs(Need("pubsub.topics.attachSubscription", on=On.ABOVE), instead=TO_LOOK)
LOOK_AT_DATA = Needs(*LOOK_ABOVE.all, instead=(VIEW, VIEW_MASKED))
LOOK_AT_BACKLOG = Needs(*CONSUME.all, instead=TO_LOOK)
GET_SUBSCRIPTION = Needs(Need("pubsub.subscriptions.get"))
UPDATE_SUBSCRIPTION = Needs(Need("pubsub.subscriptions.update"))
LIST_SUBSCRIPTIONS = Needs(Need("pubsub.subscriptions.list"))
SEEK = Needs(Need("pubsub.subscriptions.consume", "subscription"), Need("pubsub.snapshots.seek", "snapshot"))


def visible_in(required: Sequence[Required] | None, project: str) -> Collection[str] | None:
    """Returns the resources that a list may show, by what was required of its caller; None: all of the project."""
    names = {each.resource for each in required or ()}
    return None if not names or project in names else names


def to_act_as(email: str) -> Required:
    """Returns the permission that is needed to have tokens of a service account sent."""
    return Required(ACT_AS, f"{ANY_PROJECT}/serviceAccounts/{email}")


async def required_on(needs: Needs, name: str, find_subscription: FindSubscription) -> list[Required]:
    """Returns the permissions that a call needs on its resource.  `required_by` adds those on other resources.

    Raises InvalidArgument for a name that cannot be, and Unavailable.
    """
    if needs.are_of_path:
        return [_required(need, name) for need in needs.all]
    required = []
    for need in needs.all[:1]:
        if need.on is On.TOPIC:
            found = await _through_subscription(need, name, find_subscription)
            required += [found] if found is not None else []
        else:
            required.append(_required(need, name))
    return required


async def required_by(
    needs: Needs, request: Any, find_subscription: FindSubscription, *, or_update: bool = False
) -> list[Required]:
    """Returns the permissions that a request needs.

    Raises InvalidArgument for names that cannot be, and Unavailable.
    """
    required = []
    for need in (*needs.all, *(needs.to_update if or_update else ())):
        if need.mask and not any(path.startswith(need.mask) for path in request.update_mask.paths):
            continue
        value = _value(request, need.field)
        if not value and need.on is On.PROJECT and needs.named_in:
            value = _value(request, needs.named_in)
        if need.on in (On.TOPIC, On.PUSHED_AS):
            found = await _through_subscription(need, value, find_subscription)
            required += [found] if found is not None else []
        elif value or need is needs.all[0]:
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
        name = name.partition("@")[0]  # revisions have no policies of their own
    if isinstance(need.permission, str):
        permission = need.permission
        _check(name, permission, need.on)
    else:
        check_shape(name, collection if collection in _CHECKED else "") if collection != "serviceAccounts" else None
        permission = need.permission.get(collection, "")
    return Required(permission, project_of(f"{name}/") if need.on is On.PROJECT else name)


_CHECKED = frozenset({"topics", "subscriptions", "snapshots", "schemas"})


def _check(name: str, permission: str, on: On) -> None:
    """Raises InvalidArgument for a name that nothing of that kind can have, before it is used further."""
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
