"""Policies: which principals have which roles on a resource and everything below it.

They have the shape of google.iam.v1.Policy (https://cloud.google.com/iam/docs/reference/rest/v1/Policy), and the
limits of https://cloud.google.com/iam/quotas.
"""

import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.model.errors import InvalidArgument

MAX_MEMBERS, MAX_GROUPS = 1500, 250  # occurrences in the bindings of a policy
MAX_MEMBER = 512  # characters
MAX_TESTED, MAX_TESTED_RESOURCES = 100, 100  # permissions that a call tests, and resources on which it does
VERSIONS = (0, 1, 3)
NO_POLICY_ETAG = b"\x00\x20\x01"  # as Google's, of a resource that has no policy
ABOVE_PROJECTS = ""  # the name of what is above all projects

_ADDRESS = re.compile(r"[^@\s\0]+@[^@\s\0]+")
_DOMAIN = re.compile(r"[^@\s\0]+\.[^@\s\0]+")
# A service account of Kubernetes that calls by workload identity: PROJECT.svc.id.goog[NAMESPACE/NAME].
_SERVICE_ACCOUNT = re.compile(rf"{_ADDRESS.pattern}|[^@\s\0\[\]]+\.svc\.id\.goog\[[^@\s\0\[\]]+\]")
_KINDS = {
    "user": _ADDRESS,
    "serviceAccount": _SERVICE_ACCOUNT,
    "group": re.compile(r"[^\s\0]+"),
    "domain": _DOMAIN,
    "principal": re.compile(r"//[^\s\0]+"),
    "principalSet": re.compile(r"//[^\s\0]+"),
    "deleted": re.compile(r"(?:user|serviceAccount|group|principal):[^\s\0]+"),  # matches nobody
    "apiKey": re.compile(r"(?!)"),  # what an API key may do is said when it is made
}
_API_KEY = re.compile(r"apiKey:projects/[^/\s\0]+/apiKeys/[^/\s\0]+")
_IGNORING_CASE = ("user", "serviceAccount", "group", "domain")
EVERYBODY = frozenset({ALL_USERS, ALL_AUTHENTICATED_USERS})
_MEMBER_RULE = (
    "A member is user:ADDRESS, serviceAccount:ADDRESS, group:NAME, domain:NAME, principal://…, principalSet://…, "
    "allUsers or allAuthenticatedUsers."
)

Roles = Mapping[str, frozenset[str]]  # the permissions of roles by name


@dataclass(frozen=True, slots=True)
class Binding:
    """The members that have a role."""

    role: str
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class Policy:
    """`etag` changes with each change."""

    bindings: tuple[Binding, ...] = ()
    etag: bytes = NO_POLICY_ETAG

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(binding.role for binding in self.bindings)

    @property
    def members(self) -> frozenset[str]:
        return frozenset(member for binding in self.bindings for member in binding.members)

    @property
    def version(self) -> int:
        """The format of the policy: 1, or 0 where none was ever set."""
        return 0 if self.etag == NO_POLICY_ETAG else 1

    def grants(self, members: Collection[str], permission: str, roles: Roles) -> bool:
        """Whether one of the `members` has a role with the permission."""
        return any(
            permission in roles.get(binding.role, ()) and not binding.members.isdisjoint(members)
            for binding in self.bindings
        )


NO_POLICY = Policy()


def make_etag() -> bytes:
    """Returns a new etag for a policy that was changed."""
    return secrets.token_bytes(8)


def make_bindings(given: Iterable[tuple[str, Sequence[str]]]) -> tuple[Binding, ...]:
    """Bindings in their one form: a role once, sorted, addresses lowercase, without those that bind nobody.

    Raises InvalidArgument that names the role or the member that cannot be.
    """
    by_role: dict[str, set[str]] = {}
    members = groups = 0
    for role, names in given:
        if not role:
            raise InvalidArgument("Each binding must have a role (bindings.role is empty).")
        for member in names:
            _check_member(member)
            members += 1
            groups += member.startswith("group:")
        by_role.setdefault(role, set()).update(map(canonical_member, names))
    if members > MAX_MEMBERS or groups > MAX_GROUPS:
        raise InvalidArgument(
            f"A policy names at most {MAX_MEMBERS} members and {MAX_GROUPS} groups, each as often as it occurs "
            f"(members={members}, groups={groups})."
        )
    return tuple(Binding(role, frozenset(names)) for role, names in sorted(by_role.items()) if names)


def canonical_member(member: str) -> str:
    """A member as policies store and return it: with addresses and domains in lowercase, as at Google."""
    kind, _, value = member.partition(":")
    return f"{kind}:{value.lower()}" if kind in _IGNORING_CASE else member


def check_version(version: int) -> None:
    """Raises InvalidArgument for a version that there is not."""
    if version not in VERSIONS:
        raise InvalidArgument(f"Invalid policy version {version}; it must be 0, 1 or 3 (policy.version={version}).")


def chain_of(resource: str) -> tuple[str, ...]:
    """The resources whose policies hold for one: itself, what it is in, its project, and what is above projects."""
    parts = resource.split("/")
    within = ["/".join(parts[:length]) for length in range(len(parts), 1, -2)] if parts[0] == "projects" else []
    return (*within, ABOVE_PROJECTS)


def is_allowed(
    caller: Caller, permission: str, chain: Sequence[str], policies: Mapping[str, Policy], roles: Roles
) -> bool:
    """Whether the caller has the permission on the first of the `chain`.  `policies` are those of the chain."""
    for grant in caller.grants:
        if grant.resource not in chain:
            continue
        if permission in grant.permissions or any(permission in roles.get(role, ()) for role in grant.roles):
            return True
    if caller.confined:
        return False
    return any(policies[name].grants(caller.members, permission, roles) for name in chain if name in policies)


def permissions_of(
    caller: Caller, chain: Sequence[str], policies: Mapping[str, Policy], roles: Roles
) -> frozenset[str]:
    """Returns all permissions of the caller on the first of the `chain`: those for which `is_allowed` is true."""
    given = {role for grant in caller.grants if grant.resource in chain for role in grant.roles}
    if not caller.confined:
        bindings = [binding for name in chain if name in policies for binding in policies[name].bindings]
        given |= {binding.role for binding in bindings if not binding.members.isdisjoint(caller.members)}
    named = (grant.permissions for grant in caller.grants if grant.resource in chain)
    return frozenset().union(*(roles.get(role, frozenset()) for role in given), *named)


def check_principal(member: str) -> str:
    """Returns the canonical name of a principal, which may be an API key as well as any member of policies.

    Raises InvalidArgument.
    """
    if not member:
        raise InvalidArgument(
            "principal must be given, such as user:ADDRESS or serviceAccount:ADDRESS (principal=)."
        )
    if not _API_KEY.fullmatch(member):
        _check_member(member, "principal")
    return canonical_member(member)


def _check_member(member: str, field: str = "bindings.members") -> None:
    kind, colon, value = member.partition(":")
    pattern = _KINDS.get(kind)
    if member in EVERYBODY:
        return
    if not colon or pattern is None or len(member) > MAX_MEMBER or not pattern.fullmatch(value):
        raise InvalidArgument(f"Invalid policy member ({field}={member[:MAX_MEMBER]}). {_MEMBER_RULE}")
