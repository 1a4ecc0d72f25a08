"""Service agents: the principals that publish for projects without a caller.

Google publishes dead letters as service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com
(https://cloud.google.com/pubsub/docs/handling-failures#grant_forwarding_permissions).  Here the domain is the
broker's own, and the project is named by its id.  There are no credentials for service agents.
"""

import re
from functools import lru_cache

from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.access.principals.service_account import DOMAIN, RESERVED_PROJECT
from broker.model.names import leaf

_ADDRESS = re.compile(rf"service-[a-z0-9_-]+@{re.escape(f'{RESERVED_PROJECT}.{DOMAIN}')}")
_ENCODED = re.compile(r"[^a-z0-9-]")


@lru_cache(10_000)
def service_agent(project: str) -> Caller:
    """The service agent of "projects/p"; no two projects have the same one."""
    member = f"serviceAccount:{_address(leaf(project))}"
    return Caller(member, frozenset({member, ALL_USERS, ALL_AUTHENTICATED_USERS}), credential="")


def is_service_agent(email: str) -> bool:
    """Whether this is the address of a service agent, of whatever project."""
    return _ADDRESS.fullmatch(email.lower()) is not None


def _address(project_id: str) -> str:
    """Addresses ignore case, and ids of projects do not: other characters than a-z, 0-9 and - are encoded."""
    encoded = _ENCODED.sub(lambda found: f"_{ord(found[0]):02x}", project_id)
    return f"service-{encoded}@{RESERVED_PROJECT}.{DOMAIN}"
