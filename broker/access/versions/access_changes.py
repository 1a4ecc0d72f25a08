"""The changes of credentials, roles and policies between two versions of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Versions:
    """`access`: of credentials and policies; `credentials`: what that was when a credential changed last."""

    access: int
    credentials: int


@dataclass(frozen=True, slots=True)
class AccessChanges:
    """The changes up to `versions`.

    `projects` are those in which a policy, a role or a credential changed, and `credentials` those of them in which
    a credential did; None: all projects may be affected.
    """

    versions: Versions
    projects: frozenset[str] | None
    credentials: frozenset[str] | None
