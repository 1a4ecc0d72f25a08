"""Registers the calls about access policies, service accounts, roles and API keys."""

from collections.abc import Awaitable, Callable, Mapping

from broker.access.policies.authorizer import Authorizer
from broker.access.sessions.session_rows import delete_ended_sessions
from broker.access.sessions.sessions import Sessions
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.iam.account_service import ServiceAccountService
from broker.features.iam.api_key_service import ApiKeyService
from broker.features.iam.policy_service import GetResource, PolicyService
from broker.features.iam.role_service import RoleService
from broker.features.iam.rpcs import make_rpcs


def register(
    core: Core,
    *,
    authorizer: Authorizer | None,
    changed: Callable[[], Awaitable[None]],
    base_url: str,
    sessions: Sessions | None,
    has_console: bool,
    resources: Mapping[str, GetResource],
) -> Feature:
    """Registers the feature.  `changed` is awaited after each committed change.

    `base_url`: the address at which the broker is reached.  `sessions`: of the console; None if anybody may do
    anything.  `resources`: by kind of resource, the function that gets a resource that may have a policy.
    """
    database = core.database
    accounts = ServiceAccountService(database, core.clock, changed=changed, base_url=base_url)
    return Feature(
        rpcs=make_rpcs(
            policies=PolicyService(
                database,
                authorizer,
                clock=core.clock,
                changed=changed,
                resources=resources,
                service_accounts=accounts,
            ),
            accounts=accounts,
            roles=RoleService(database, core.clock, changed=changed),
            api_keys=ApiKeyService(database, core.clock, changed=changed),
            sessions=sessions,
            has_console=has_console,
        ),
        clean_ups=[delete_ended_sessions],
    )
