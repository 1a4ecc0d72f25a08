"""Authentication, authorization and the audit log, each of which exists only if the settings ask for it."""

from collections.abc import Callable

from broker.access.access import ROTATION_SECONDS, Access
from broker.access.audit.trail import AuditTrail
from broker.access.credentials.issuer_keys import REFRESH_SECONDS
from broker.access.policies.authorizer import Authorizer
from broker.access.secrets.secrets import Secrets
from broker.api.gate import Gate
from broker.api.limits.address_turns import FREE_A_SECOND, FREE_AT_ONCE, AddressTurns
from broker.api.logging.auditor import Auditor
from broker.api.logging.call_log import CallLog
from broker.api.permissions import FindSubscription
from broker.api.steps import Turns
from broker.app.config import AppConfig
from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.core.process.supervisor import Loop, Worker
from broker.core.publishing.publish_rights import allow_any_publisher
from broker.fairness.refusal_pace import ERRORS_A_SECOND, ERRORS_AT_ONCE, RefusalPace
from broker.observability.log import open_access_log
from broker.observability.state_changes import StateChanges


class Guard:
    """Credentials, permissions and the audit log.

    `access`: None if anybody may do anything.  `audit_trail`: None if there is no audit log.
    """

    def __init__(self, config: AppConfig, core: Core) -> None:
        self.secrets = Secrets(config.secrets_key_file)
        self.access = _make_access(config, core, self.secrets)
        self.audit_trail = _make_audit_trail(config, core)
        self.check_publisher = self.access.agents.check_publisher if self.access else allow_any_publisher

    @property
    def authorizer(self) -> Authorizer | None:
        """None if anybody may do anything."""
        return None if self.access is None else self.access.authorizer

    async def access_changed(self) -> None:
        """Applies a change that this process has made, before its caller is answered."""
        if self.access is not None:
            await self.access.version.refresh()

    def workers(self) -> dict[str, Worker]:
        """The background work, by the names that the log uses."""
        workers: dict[str, Worker] = {}
        if self.access is not None:
            workers["access version"] = Loop(self.access.version.run)
            workers["access token keys"] = PeriodicWorker(self.access.rotate, ROTATION_SECONDS)
            workers["issuer keys"] = PeriodicWorker(self.access.issuers.refresh, REFRESH_SECONDS)
        if self.audit_trail is not None:
            workers["audit log"] = Loop(self.audit_trail.run)
        return workers


def _make_access(config: AppConfig, core: Core, secrets: Secrets) -> Access | None:
    if config.auth == "off":
        return None
    return Access(
        core.database,
        secrets=secrets,
        address=config.address,
        audiences=[config.address, *config.audiences],
        issuers=config.oidc_issuers,
        certificate_principals=config.certificate_principals,
        now=core.clock.now,
        states=core.states,
    )


def _make_audit_trail(config: AppConfig, core: Core) -> AuditTrail | None:
    if not config.is_audited:
        return None
    return AuditTrail(core.database, now=core.clock.now, path=config.audit_file, states=core.states)


def make_gate(access: Access | None, find_subscription: FindSubscription) -> Gate | None:
    """Creates the gate that checks the callers of REST and gRPC (None: callers are not authenticated)."""
    if access is None:
        return None
    return Gate(access.authenticator, access.authorizer, access.version, find_subscription=find_subscription)


def make_call_log(
    config: AppConfig, states: StateChanges, *, excused: Callable[[], bool], turns: AddressTurns
) -> CallLog:
    """Logs calls of REST and gRPC; `excused()`: whether calls fail for a reason that the log has already."""
    access = open_access_log(config.access_log)
    pace = RefusalPace(a_second=ERRORS_A_SECOND, at_once=ERRORS_AT_ONCE)
    slow = config.slow_request_seconds
    return CallLog(states, excused=excused, access=access, slow_seconds=slow, pace=pace, turns=turns)


def make_address_turns(turns: Turns) -> AddressTurns:
    """Turns of what needs no permission, shared by REST, gRPC and the pages beside them."""
    return AddressTurns(turns, RefusalPace(a_second=FREE_A_SECOND, at_once=FREE_AT_ONCE))


def make_auditor(config: AppConfig, trail: AuditTrail | None) -> Auditor:
    """Enters calls of REST and gRPC in the audit log, if there is one."""
    return Auditor(trail, data_access=config.audit == "all")
