"""REST handler that lists the clients that pull or stream from a subscription, an extension."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_list_size
from broker.api.rest.codec.resources import encode_resource
from broker.core.pulling.reader import Reader
from broker.features.inspect.consumer_service import ConsumerService
from broker.model.durations import format_duration
from broker.model.timestamps import format_timestamp


async def list_consumers(service: ConsumerService, call: Call) -> bytes:
    size = decode_list_size(call.query)
    return encode_resource(consumers_json(*await service.list_consumers(call.name, page_size=size)))


# --- JSON ---------------------------------------------------------------------------------------------------


def consumers_json(readers: Sequence[Reader], total: int, now: datetime) -> dict[str, Any]:
    return {"consumers": [_consumer(reader, now) for reader in readers], "totalSize": total}


def _consumer(reader: Reader, now: datetime) -> dict[str, Any]:
    """Returns the JSON of a client.  Unknown values are left out."""
    body: dict[str, Any] = {"kind": reader.kind, "process": reader.process}
    named = {"clientId": reader.client_id, "address": reader.address, "principal": reader.principal}
    body |= {name: value for name, value in named.items() if value}
    body |= {"startTime": format_timestamp(reader.since), "updateTime": format_timestamp(reader.seen_at)}
    body["outstandingMessages"] = reader.outstanding
    if reader.oldest_since is not None:
        body["oldestOutstandingMessageAge"] = format_duration(max(now - reader.oldest_since, timedelta(0)))
    body["acksPerSecond"] = round(reader.acks_per_second, 3)
    times = {"ackLatencyP50": reader.ack_p50, "ackLatencyP99": reader.ack_p99}
    return body | {
        name: format_duration(timedelta(milliseconds=round(seconds * 1000)))
        for name, seconds in times.items()
        if seconds is not None
    }
