"""Logs every change of a resource in one line, over either API and also without --auth.

    INFO broker.changes: anonymous at 10.1.2.3 called UpdateTopic on projects/p/topics/orders: labels

The APIs pass the request and the response as bytes, so that handlers need no code for this.
"""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from broker.access.principals.caller import Caller
from broker.api.generated.messages import request_of
from broker.api.logging.call_log import resource_of
from broker.api.peer import host_of
from broker.api.rpc import Audit, Rpc
from broker.model.field_mask import parse_field_mask
from broker.observability.log import extra, fields_of

logger = logging.getLogger("broker.changes")


def log_change(
    rpc: Rpc, resource: str, caller: Caller, peer: object, *, fields: Sequence[str] = (), request_id: bytes = b""
) -> None:
    """Logs a change of the resource by a call of `rpc`; `fields`: those that an update names."""
    if rpc.audit is Audit.MESSAGES:
        return
    method = rpc.name.rpartition(".")[2]
    who, address = caller.member or "anonymous", host_of(peer) or "a socket of this machine"
    named = f": {', '.join(fields)}" if fields else ""
    about = fields_of(
        resource,
        event="resource_changed",
        method=method,
        resource=resource,
        principal=who,
        remote_address=host_of(peer),
        changed_fields=list(fields) or None,
    )
    arguments = (who, address, method, resource, named)
    logger.info("%s at %s called %s on %s%s", *arguments, extra=extra(about, request_id))


def changed_in_json(rpc: Rpc, resource: str, mask: str | None, body: bytes, answer: bytes) -> tuple[str, list[str]]:
    """The resource that a call over REST has changed, and the fields that it names.

    `resource` is the one of the path, which of a new resource may be what it is made in; `mask` is of the query.
    """
    if rpc.audit is Audit.CREATE:
        made = _object(answer).get("name")
        resource = made if isinstance(made, str) else resource
    if mask:
        return resource, parse_field_mask(mask)
    if rpc.audit is not Audit.UPDATE:
        return resource, []
    given = _object(body)
    mask = given.get("updateMask") or given.get("update_mask")
    return resource, parse_field_mask(mask if isinstance(mask, str) else ",".join(given))


def changed_in_message(rpc: Rpc, resource: str, request: bytes, answer: bytes) -> tuple[str, list[str]]:
    """The same of a call over gRPC."""
    if rpc.audit is Audit.CREATE:
        made = resource_of(answer)
        return (resource if made == "-" else made), []
    if rpc.audit is not Audit.UPDATE:
        return resource, []
    return resource, list(request_of(rpc.name).FromString(request).update_mask.paths)


def _object(encoded: bytes) -> dict[str, Any]:
    """Decodes a body or an answer that a handler has read or made; {} if it is no JSON object."""
    try:
        found = msgspec.json.decode(encoded or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
