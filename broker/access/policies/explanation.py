"""Explains why a principal has a permission on a resource, or lacks it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from broker.access.principals.caller import Caller
from broker.access.principals.policy import ABOVE_PROJECTS, Policy, Roles


class Level(StrEnum):
    """The place where a role was given."""

    RESOURCE = "RESOURCE"
    PROJECT = "PROJECT"
    INSTALLATION = "INSTALLATION"
    CREDENTIAL = "CREDENTIAL"  # an API key has roles of its own


class GivenRole(NamedTuple):
    """A role that the policy of `resource` gives `member`, or that a credential has there itself."""

    level: Level
    resource: str
    role: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`granted_by`: the roles of the principal with the permission; `others`: those without it.  `groups`: roles of
    groups that have the permission; only its token says whether the principal is in one.  `why_nobody`: why the
    principal cannot call at all; empty: it can.  `hidden`: resources whose policies are not to be shown.
    """

    principal: str
    permission: str
    resource: str
    chain: Sequence[str]
    granted_by: Sequence[GivenRole] = ()
    others: Sequence[GivenRole] = ()
    groups: Sequence[GivenRole] = ()
    roles_with_permission: Sequence[str] = ()
    is_confined: bool = False
    why_nobody: str = ""
    hidden: Collection[str] = field(default_factory=frozenset)

    @property
    def is_granted(self) -> bool:
        return bool(self.granted_by) and not self.why_nobody

    @property
    def sentence(self) -> str:
        """The whole explanation in words."""
        if self.is_granted:
            reasons = dict.fromkeys(self._reason(given) for given in self.granted_by)
            return f"{self._has('has')}: {'; '.join(reasons)}."
        if self.why_nobody:
            return f"{self._has('does not have')}: {self.why_nobody}."
        if self.is_confined:
            lacks = "an API key has the roles that it was created with, and none of them has the permission there"
        else:
            levels = [self._described(name) for name in self.chain]
            of_levels = f"{', '.join(levels[:-1])} and {levels[-1]}"
            lacks = f"the policies of {of_levels} give it no role with that permission"
        parts = [f"{self._has('does not have')}: {lacks}."]
        if self.others:
            held = dict.fromkeys(f"{given.role} on {self._described(given.resource)}" for given in self.others)
            parts.append(f"It has {_listed(list(held))}.")
        if self.groups:
            groups = _listed(sorted({given.member for given in self.groups}))
            parts.append(f"It would have the permission as a member of {groups}, which only its token shows.")
        parts.append(f"These roles have the permission: {_listed(self.roles_with_permission)}.")
        return " ".join(parts)

    def _has(self, verb: str) -> str:
        return f"{self.principal} {verb} {self.permission} on {self.resource}"

    def _reason(self, given: GivenRole) -> str:
        if given.level is Level.CREDENTIAL:
            return f"the key has {given.role} on {given.resource}"
        level = self._described(given.resource)
        if given.resource in self.hidden:
            return f"the policy of {level}, which you may not read, gives it a role"
        to = "it" if given.member == self.principal else given.member
        return f"the policy of {level} gives {to} {given.role}"

    def _described(self, name: str) -> str:
        return "the installation" if name == ABOVE_PROJECTS else name


def explain(
    caller: Caller,
    permission: str,
    resource: str,
    *,
    chain: Sequence[str],
    policies: Mapping[str, Policy],
    roles: Roles,
) -> Explanation:
    """Explains the decision of `is_allowed` (principals/policy.py); `chain` and `policies` are as there."""
    given = [
        GivenRole(Level.CREDENTIAL, grant.resource, role, caller.member)
        for grant in caller.grants
        for role in sorted(grant.roles)
        if grant.resource in chain
    ]
    bound = [
        GivenRole(_level(name, resource), name, binding.role, member)
        for name in chain
        for binding in policies[name].bindings
        for member in sorted(binding.members)
    ]
    if not caller.confined:
        given += [each for each in bound if each.member in caller.members]
    has = [permission in roles.get(each.role, ()) for each in given]
    is_person = caller.member.startswith(("user:", "principal:"))
    return Explanation(
        principal=caller.member,
        permission=permission,
        resource=resource,
        chain=chain,
        granted_by=[each for each, granted in zip(given, has, strict=True) if granted],
        others=[each for each, granted in zip(given, has, strict=True) if not granted],
        groups=[each for each in bound if is_person and _may_be_in(each, caller, permission, roles)],
        roles_with_permission=sorted(role for role, permissions in roles.items() if permission in permissions),
        is_confined=caller.confined,
    )


def _may_be_in(given: GivenRole, caller: Caller, permission: str, roles: Roles) -> bool:
    is_group = given.member.startswith(("group:", "principalSet:"))
    return is_group and given.member not in caller.members and permission in roles.get(given.role, ())


def _level(name: str, resource: str) -> Level:
    if name == ABOVE_PROJECTS:
        return Level.INSTALLATION
    return Level.PROJECT if name.count("/") == 1 else Level.RESOURCE


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)
