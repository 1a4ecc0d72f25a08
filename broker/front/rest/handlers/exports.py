"""What a topic retains as JSON lines, and such lines into a topic; extensions (G2)."""

from contextlib import aclosing

from broker.domain.errors import BrokerError
from broker.front.rest.call import Call
from broker.front.rest.codec.exports import decode_export, decode_part, encode_failure_line, encode_lines
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.event_stream import EventStream, while_there
from broker.services.exports import Pages
from broker.telemetry.spent import spending

_JSON_LINES = b"application/jsonl"


async def export_topic(call: Call) -> bytes:
    """Until there is no more, or the caller goes, does not read, or may not read any more."""
    async with call.services.looking.exports.export(call.name, decode_export(call.body)) as pages:
        stream = EventStream(call.exchange, _JSON_LINES)
        stream.begin()
        with spending("messages"):
            await while_there(call.exchange, _send(call, stream, pages))
    stream.end()
    return b""


async def _send(call: Call, stream: EventStream, pages: Pages) -> None:
    try:
        async with aclosing(pages):
            async for page in pages:
                for piece in encode_lines(page):
                    if not await stream.send(piece):
                        return
    except BrokerError as error:
        await stream.send(encode_failure_line(error))
        call.exchange.cut_off()  # else one would take what there is for all


async def import_topic(call: Call) -> bytes:
    part = decode_part(call.query, call.body)
    imported = await call.services.acting.imports.import_part(call.name, part, call.body, call.caller.member)
    answer = {"messageCount": str(imported.message_count)}
    return encode_resource(answer | ({"repeated": True} if imported.repeated else {}))
