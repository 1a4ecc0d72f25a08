"""Resetting projects, an extension."""

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.features.reset.service import ResetService

_DELETED = ("topics", "subscriptions", "snapshots", "schemas", "operations", "schedules")


async def reset_project(service: ResetService, call: Call) -> bytes:
    emptied = await service.reset_project(call.name, by=call.caller.member)
    return encode_resource({"deleted": {kind: len(getattr(emptied, kind)) for kind in _DELETED}})
