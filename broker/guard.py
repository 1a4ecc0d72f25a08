"""Who may call a process, and what is written of it: parts that are there only where the settings ask for them."""

from collections.abc import Callable
from datetime import datetime

from broker.access.access import ROTATION_SECONDS, Access
from broker.access.audit.trail import AuditTrail
from broker.access.credentials.issuer_keys import REFRESH_SECONDS
from broker.app_config import AppConfig
from broker.front.address_turns import FREE_A_SECOND, FREE_AT_ONCE, AddressTurns
from broker.front.auditor import Auditor
from broker.front.call_log import CallLog
from broker.front.gate import Gate
from broker.front.permissions import FindSubscription
from broker.front.steps import Turns
from broker.runtime.refusal_pace import ERRORS_A_SECOND, ERRORS_AT_ONCE, RefusalPace
from broker.secrets.secrets import Secrets
from broker.store.driver.database import Database
from broker.telemetry.log import open_access_log
from broker.telemetry.state_changes import StateChanges
from broker.workers.periodic import PeriodicWorker
from broker.workers.supervisor import Loop, Worker


def make_access(
    config: AppConfig, database: Database, secrets: Secrets, *, now: Callable[[], datetime], states: StateChanges
) -> Access | None:
    """None: anybody may do anything."""
    if config.auth == "off":
        return None
    audiences = [config.address, *config.audiences]
    return Access(
        database,
        secrets=secrets,
        audiences=audiences,
        issuers=config.oidc_issuers,
        certificate_principals=config.certificate_principals,
        now=now,
        states=states,
    )


def make_gate(access: Access | None, find_subscription: FindSubscription) -> Gate | None:
    """Of both doors."""
    if access is None:
        return None
    return Gate(access.authenticator, access.authorizer, access.version, find_subscription=find_subscription)


def make_audit_trail(
    config: AppConfig, database: Database, *, now: Callable[[], datetime], states: StateChanges
) -> AuditTrail | None:
    """None: there is no audit log."""
    return AuditTrail(database, now=now, path=config.audit_file, states=states) if config.is_audited else None


def make_call_log(
    config: AppConfig, states: StateChanges, *, excused: Callable[[], bool], turns: AddressTurns
) -> CallLog:
    """Of both doors."""
    access = open_access_log(config.access_log)
    pace = RefusalPace(a_second=ERRORS_A_SECOND, at_once=ERRORS_AT_ONCE)
    slow = config.slow_request_seconds
    return CallLog(states, excused=excused, access=access, slow_seconds=slow, pace=pace, turns=turns)


def make_address_turns(turns: Turns) -> AddressTurns:
    """Of both doors, and of the pages beside them."""
    return AddressTurns(turns, RefusalPace(a_second=FREE_A_SECOND, at_once=FREE_AT_ONCE))


def make_auditor(config: AppConfig, trail: AuditTrail | None) -> Auditor:
    """Of both doors."""
    return Auditor(trail, data_access=config.audit == "all")


def guard_workers(access: Access | None, trail: AuditTrail | None) -> dict[str, Worker]:
    """What they do by themselves."""
    workers: dict[str, Worker] = {}
    if access is not None:
        workers["access version"] = Loop(access.version.run)
        workers["access token keys"] = PeriodicWorker(access.rotate, ROTATION_SECONDS)
        workers["issuer keys"] = PeriodicWorker(access.issuers.refresh, REFRESH_SECONDS)
    if trail is not None:
        workers["audit log"] = Loop(trail.run)
    return workers
