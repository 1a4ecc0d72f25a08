"""Registers the call that reads the audit log."""

from broker.core.context.core import Core
from broker.features.audit.rpcs import make_rpcs
from broker.features.audit.service import AuditLogService
from broker.features.feature import Feature


def register(core: Core) -> Feature:
    return Feature(rpcs=make_rpcs(AuditLogService(core.database)))
