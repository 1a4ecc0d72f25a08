"""An entry of the audit log: which caller did what (E5).

Entries have the shape of Google's Cloud Audit Logs:
https://cloud.google.com/logging/docs/audit/understanding-audit-logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.model.timestamps import format_timestamp

AUDIT_DAYS = 90  # for which an entry is kept, unless the operator says otherwise
AUDIT_ENTRIES = 50_000  # of a project that are kept, unless the operator says otherwise
_TYPE = "type.googleapis.com/google.cloud.audit.AuditLog"
_PACKAGES = {
    "Publisher": ("pubsub.googleapis.com", "google.pubsub.v1."),
    "Subscriber": ("pubsub.googleapis.com", "google.pubsub.v1."),
    "SchemaService": ("pubsub.googleapis.com", "google.pubsub.v1."),
    "IAMPolicy": ("iam.googleapis.com", "google.iam.v1."),
    "IAM": ("iam.googleapis.com", "google.iam.admin.v1."),
    "ApiKeys": ("apikeys.googleapis.com", "google.api.apikeys.v2."),
}
# https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
CODES = {
    "OK": 0,
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}


def method_name(rpc: str) -> str:
    """The full name of a method ("Publisher.CreateTopic"); an extension of ours has no package."""
    service, _, name = rpc.partition(".")
    return f"{_PACKAGES[service][1]}{rpc}" if service in _PACKAGES and name else rpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """An audited action, without its time and count: equal ones are one entry.

    `principal` is the caller as policies name it, `credential` the id of the credential; both are empty if no valid
    credential was sent.  `address` is the caller's.  `permission`: the one that was missing.
    """

    method: str
    resource: str
    code: str
    principal: str = ""
    credential: str = ""
    address: str = ""
    permission: str = ""

    @property
    def project(self) -> str:
        """ "projects/p"; empty: of none."""
        parts = self.resource.split("/", 2)
        return "/".join(parts[:2]) if parts[0] == "projects" and len(parts) > 1 else ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`times`: how often it happened within the interval that it was counted in, the last time at `time`.
    `number`: of its row (0: none).  `is_change`: the call changed something.
    """

    what: Audited
    time: datetime
    times: int = 1
    number: int = 0
    is_change: bool = False

    def as_json(self) -> Mapping[str, Any]:
        """Encodes the entry as a LogEntry with an AuditLog in it; empty parts are left out."""
        what = self.what
        service, _, _ = what.method.rpartition(".")[0].rpartition(".")
        caller = {"principalEmail": what.principal.partition(":")[2], "principalSubject": what.principal}
        payload: dict[str, Any] = {
            "@type": _TYPE,
            "serviceName": _service_of(service),
            "methodName": what.method,
            "resourceName": what.resource,
            "authenticationInfo": _filled({**caller, "credentialId": what.credential}),
            "requestMetadata": _filled({"callerIp": what.address}),
            "status": {"code": CODES.get(what.code, 2), "message": what.code} if what.code != "OK" else {},
        }
        if what.permission:
            payload["authorizationInfo"] = [
                {"resource": what.resource, "permission": what.permission, "granted": False}
            ]
        entry = {
            "insertId": str(self.number) if self.number else "",
            "timestamp": format_timestamp(self.time),
            "severity": "NOTICE" if what.code == "OK" else "ERROR",
            "protoPayload": _filled(payload),
        }
        return _filled(entry) | ({"times": self.times} if self.times > 1 else {})


def _service_of(package: str) -> str:
    return next((service for service, known in _PACKAGES.values() if known == f"{package}."), "broker")


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in ("", {}, [])}
