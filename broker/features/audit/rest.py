"""The call that lists the audit log, an extension."""

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.features.audit.service import AuditLogService


async def list_audit_logs(service: AuditLogService, call: Call) -> bytes:
    size, token = decode_page_parameters(call.query)
    entries, next_token = await service.list_entries(
        call.name, filter_text=call.query.get("filter", ""), page_size=size, page_token=token
    )
    return encode_list("entries", [entry.as_json() for entry in entries], next_token)
