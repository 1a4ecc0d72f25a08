"""What a topic retains as JSON lines or an Avro file, and such parts into a topic; extensions (G2)."""

import asyncio
from contextlib import aclosing
from secrets import token_bytes

from broker.domain.avro_messages import SYNC_BYTES
from broker.domain.errors import BrokerError
from broker.domain.imports import Part
from broker.front.rest.call import Call
from broker.front.rest.codec.export_forms import ExportForm
from broker.front.rest.codec.exports import decode_avro_part, decode_export, decode_part, is_avro
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.event_stream import EventStream, while_there
from broker.services.exports import Pages
from broker.telemetry.spent import spending


async def export_topic(call: Call) -> bytes:
    """Until there is no more, or the caller goes, does not read, or may not read any more."""
    options, form = decode_export(call.body, token_bytes(SYNC_BYTES))
    async with call.services.looking.exports.export(call.name, options) as pages:
        stream = EventStream(call, form.content_type)
        stream.begin()
        with spending("messages"):
            await while_there(call.exchange, _send(call, stream, form, pages))
    stream.end()
    return b""


async def _send(call: Call, stream: EventStream, form: ExportForm, pages: Pages) -> None:
    try:
        if (head := form.begin()) and not await stream.send(head):
            return
        async with aclosing(pages):
            async for page in pages:
                pieces = form.pieces(page)
                for piece in pieces if form.quick else await asyncio.to_thread(list, pieces):
                    if not await stream.send(piece):
                        return
    except BrokerError as error:
        if said := form.failure(error):
            await stream.send(said)
        call.exchange.cut_off()  # else one would take what there is for all


async def import_topic(call: Call) -> bytes:
    if is_avro(call.body):
        part = await _avro_part(call)
    else:
        part = await call.in_steps(decode_part(call.query, call.body))
    imported = await call.services.acting.imports.import_part(call.name, part, call.body, call.caller.member)
    answer = {"messageCount": str(imported.message_count)}
    return encode_resource(answer | ({"repeated": True} if imported.repeated else {}))


async def _avro_part(call: Call) -> Part:
    part, unpacked = await asyncio.to_thread(decode_avro_part, call.query, call.body)
    call.hold(max(0, unpacked - len(call.body)))
    return part
