"""REST handler that returns the histogram of a topic's log, an extension."""

from collections.abc import Mapping
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_int32, parse_timestamp
from broker.features.inspect.histogram import Bucket, Histogram, HistogramOptions, parse_histogram
from broker.features.inspect.histogram_service import HistogramService
from broker.model.durations import format_duration
from broker.model.timestamps import format_timestamp


async def get_histogram(service: HistogramService, call: Call) -> bytes:
    options = decode_histogram(call.query)
    return encode_resource(
        histogram_json(await service.get_histogram(call.name, options, hung_up=call.exchange.hung_up))
    )


# --- JSON ---------------------------------------------------------------------------------------------------


def decode_histogram(query: Mapping[str, str]) -> HistogramOptions:
    """Raises InvalidArgument."""
    names = {"startTime": "start_time", "endTime": "end_time"}  # either spelling
    given = {name: query.get(name, query.get(other, "")) for name, other in names.items()}
    times = {name: parse_timestamp(text, name) for name, text in given.items() if text}
    buckets = query.get("buckets", "")
    return parse_histogram(
        parse_int32(buckets, "buckets") if buckets else None,
        since=times.get("startTime"),
        until=times.get("endTime"),
    )


def histogram_json(histogram: Histogram) -> dict[str, Any]:
    body: dict[str, Any] = {
        "startTime": format_timestamp(histogram.start),
        "endTime": format_timestamp(histogram.end),
        "bucketDuration": format_duration(histogram.width),
        "buckets": [_bucket(bucket) for bucket in histogram.buckets],
        "messageCount": sum(bucket.messages for bucket in histogram.buckets),
        "byteCount": sum(bucket.bytes for bucket in histogram.buckets),
    }
    return body | ({"estimated": True} if histogram.is_estimate else {})


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "startTime": format_timestamp(bucket.start),
        "messageCount": bucket.messages,
        "byteCount": bucket.bytes,
    }
