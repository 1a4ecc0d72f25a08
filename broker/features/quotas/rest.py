"""Quotas, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.features.quotas.quota import Limits, QuotaReport, unit_of
from broker.features.quotas.service import QuotaService
from broker.model.quota_names import AMOUNTS, COUNTS, RATES


async def get_quotas(service: QuotaService, call: Call) -> bytes:
    return encode_resource(quotas_json(await service.get_quotas(call.name)))


async def update_quotas(service: QuotaService, call: Call) -> bytes:
    request = decode_update_quotas(call.body)
    report = await service.update_quotas(
        call.name, limits=request.limits, principal_limits=request.principal_limits, etag=request.etag
    )
    return encode_resource(quotas_json(report))


# --- JSON ---------------------------------------------------------------------------------------------------


class UpdateQuotasRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    limits: dict[str, int | None] = {}
    principal_limits: dict[str, int | None] = {}
    etag: str = ""


_update = msgspec.json.Decoder(UpdateQuotasRequest)


def decode_update_quotas(body: bytes) -> UpdateQuotasRequest:
    """Raises InvalidArgument."""
    return decode_request(_update, body)


def quotas_json(report: QuotaReport) -> dict[str, Any]:
    """Returns the quotas as JSON: those that were set, and for each quota the limit in force and the usage.

    Without a limit there is no such field.
    """
    usage = {(used.principal, used.quota): used.usage for used in report.rates}
    principals = dict.fromkeys(used.principal for used in report.rates if used.principal)
    rates = [_quota(name, report.in_force.limits, round(usage.get(("", name), 0.0), 1)) for name in RATES]
    counts = [_quota(name, report.in_force.limits, report.counts[name]) for name in COUNTS]
    amounts = [_quota(name, report.in_force.limits, report.amounts[name]) for name in AMOUNTS]
    of_principals = [
        {"principal": principal} | _quota(name, report.in_force.principal_limits, round(usage[principal, name], 1))
        for principal in principals
        for name in RATES
        if (principal, name) in usage
    ]
    return {
        "name": f"{report.project}/quotas",
        "limits": report.set_here.limits,
        "principalLimits": report.set_here.principal_limits,
        "etag": report.set_here.etag,
        "quotas": rates + counts + amounts,
        "principalQuotas": of_principals,
    }


def _quota(name: str, limits: Limits, usage: float) -> dict[str, Any]:
    limit = {"limit": limits[name]} if name in limits else {}
    return {"quota": name, "unit": unit_of(name), **limit, "usage": usage}
