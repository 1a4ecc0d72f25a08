"""A share link: what its holder may do, of what its creator may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.model.durations import format_duration, parse_duration
from broker.model.errors import InvalidArgument

MIN_TTL, MAX_TTL, DEFAULT_TTL = timedelta(minutes=1), timedelta(days=30), timedelta(days=7)
MAX_LINKS = 100  # of a subscription, that have not expired
SHARE = "pubsub.subscriptions.setIamPolicy"  # who creates a link gives access
VIEW = "VIEW_PUSH_ATTEMPTS"


class Permitted(NamedTuple):
    """The calls that a permission of a link allows, and what its creator needs.

    `calls`: the calls that the holder's page makes.  `needs`: the creator's permissions on the subscription.
    """

    calls: frozenset[str]
    needs: frozenset[str]


PERMISSIONS: Mapping[str, Permitted] = {
    VIEW: Permitted(
        frozenset({"GetPushStatus", "ListPushAttempts", "ListPushFailures"}),
        frozenset({"pubsub.subscriptions.get", "pubsub.subscriptions.update"}),  # failures quote the endpoint
    ),
    "RESEND": Permitted(frozenset({"ResendMessages"}), frozenset({"pubsub.subscriptions.consume"})),
    "RECOVER": Permitted(frozenset({"RecoverPushes"}), frozenset({"pubsub.subscriptions.consume"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLink:
    """`creator`: a principal, which matched `creator_members` in policies when it created the link."""

    subscription: str
    link_id: str
    permissions: Sequence[str]
    creator: str
    creator_members: frozenset[str]
    created_at: datetime
    expires_at: datetime

    @property
    def name(self) -> str:
        return f"{self.subscription}/shareLinks/{self.link_id}"


def needed_for(permissions: Sequence[str]) -> frozenset[str]:
    """Returns the permissions that the creator of a link with these needs, and must keep."""
    return frozenset({SHARE}).union(*(PERMISSIONS[one].needs for one in permissions))


def check_permissions(given: Sequence[str]) -> Sequence[str]:
    """Returns the permissions of a link, each once: looking is always among them.  Raises InvalidArgument."""
    for one in given:
        if one not in PERMISSIONS:
            raise InvalidArgument(
                f"A share link permits {', '.join(PERMISSIONS)}, and nothing else (permissions={one[:100]})."
            )
    return [one for one in PERMISSIONS if one == VIEW or one in given]


def check_ttl(given: str) -> timedelta:
    """Returns how long a link works; "": seven days.  Raises InvalidArgument."""
    ttl = parse_duration(given, "ttl") if given else DEFAULT_TTL
    if not MIN_TTL <= ttl <= MAX_TTL:
        raise InvalidArgument(
            f"A share link works for {format_duration(MIN_TTL)} to {format_duration(MAX_TTL)}, that is 30 days "
            f"(ttl={given[:100]})."
        )
    return ttl
