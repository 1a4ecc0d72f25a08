"""Quotas; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.quotas import decode_update_quotas, quotas_json
from broker.front.rest.codec.resources import encode_resource


async def get_quotas(call: Call) -> bytes:
    return encode_resource(quotas_json(await call.services.quotas.get_quotas(call.name)))


async def update_quotas(call: Call) -> bytes:
    request = decode_update_quotas(call.body)
    report = await call.services.quotas.update_quotas(
        call.name, limits=request.limits, principal_limits=request.principal_limits
    )
    return encode_resource(quotas_json(report))
