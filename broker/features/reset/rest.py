"""The call that resets a project, an extension."""

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import preview_answer, safeguards_of_body
from broker.features.reset.service import ResetService
from broker.model.preview import Undone


async def reset_project(service: ResetService, call: Call) -> bytes:
    safeguards = safeguards_of_body(call.body)
    try:
        emptied = await service.reset_project(call.name, safeguards, by=call.caller.member)
    except Undone as undone:
        return await preview_answer(call, undone.preview)
    return encode_resource({"deleted": emptied.counts})
