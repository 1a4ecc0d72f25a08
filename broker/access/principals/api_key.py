"""API keys: a secret that may do what its roles allow, on its project or on some of its resources."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.model.errors import InvalidArgument
from broker.model.names import leaf

MAX_API_KEYS = 300  # of a project
MAX_ROLES = 20
MAX_RESOURCES = 100
MAX_DISPLAY_NAME = 63  # characters
MAX_KEY_BYTES = 512  # of what is shown as a key; ours have 47

_ROLE = re.compile(r"(?:projects/[A-Za-z0-9_.:~+%-]{1,63}/)?roles/[A-Za-z0-9_.]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """`digest` is that of the key.  `resources`: names that it is restricted to; none: its project."""

    name: str
    display_name: str
    digest: bytes
    roles: Sequence[str]
    resources: Sequence[str]
    created_at: datetime

    @property
    def project(self) -> str:
        return self.name.partition("/apiKeys/")[0]


def digest_of(key: bytes) -> bytes:
    """Returns the digest of a key, which is stored and looked up.

    The time that a comparison of digests takes reveals nothing of the key.
    """
    return hashlib.sha256(key).digest()


def check_api_key(project: str, display_name: str, roles: Sequence[str], resources: Sequence[str]) -> None:
    """Raises InvalidArgument for an API key that cannot be."""
    if len(display_name) > MAX_DISPLAY_NAME or "\0" in display_name:
        raise InvalidArgument(
            f"display_name may have at most {MAX_DISPLAY_NAME} characters, none of them U+0000 "
            f"(it has {len(display_name)})."
        )
    if not roles:
        raise InvalidArgument("roles must name at least one role: a key without any can do nothing.")
    if len(roles) > MAX_ROLES or len(resources) > MAX_RESOURCES:
        raise InvalidArgument(
            f"A key has at most {MAX_ROLES} roles and {MAX_RESOURCES} resources "
            f"(roles={len(roles)}, resources={len(resources)})."
        )
    for role in roles:
        if not _ROLE.fullmatch(role):
            raise InvalidArgument(f"roles must be names such as roles/pubsub.publisher (role={role[:100]}).")
    for resource in resources:
        if not resource.startswith(f"{project}/") or "\0" in resource:
            raise InvalidArgument(
                f"resources must be of the key's project {leaf(project)} (resource={resource[:300]})."
            )
