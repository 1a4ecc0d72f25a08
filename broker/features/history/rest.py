"""The history of metrics in the form of Cloud Monitoring's timeSeries.list, an extension."""

from datetime import timedelta
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.features.history.rows import Point
from broker.features.history.service import EACH, History, HistoryService, Interval, TimeSeries, Window
from broker.model.durations import parse_duration
from broker.model.errors import InvalidArgument
from broker.model.history_tiers import SECOND
from broker.model.names import leaf
from broker.model.refusals import refuse_nul
from broker.model.timestamps import format_timestamp, parse_timestamp


async def list_time_series(service: HistoryService, call: Call) -> bytes:
    query = call.query
    metric, resource, label = query.get("metric", ""), query.get("resource", ""), query.get("label", "")
    refuse_nul(label, "label")
    alignment, interval = query.get("alignmentPeriod", ""), _interval(query.get("interval", ""))
    period = parse_duration(alignment, "alignmentPeriod") if alignment else None
    if resource.endswith(f"/{EACH}"):
        history = await service.list_of_each(
            call.name, metric=metric, resource=resource, label=label, interval=interval, alignment=period
        )
        return encode_resource(history_json(history))
    if label:
        raise InvalidArgument(f"label is for a resource that ends in /{EACH} (label={label[:100]}).")
    history = await service.list_time_series(
        call.name, metrics=metric.split(","), resource=resource, interval=interval, alignment=period
    )
    return encode_resource(history_json(history))


def _interval(text: str) -> Interval:
    """Parses "3600s" (until now), or START/END, where END may be absent.  Raises InvalidArgument."""
    if not text:
        return Interval()
    start, slash, end = text.partition("/")
    if slash:
        return Interval(parse_timestamp(start, "interval"), parse_timestamp(end, "interval") if end else None)
    length = parse_duration(text, "interval")
    if length <= timedelta():
        raise InvalidArgument(f"Invalid value at 'interval': {text[:100]!r} must be more than 0s.")
    return Interval(length=length)


# --- JSON ---------------------------------------------------------------------------------------------------


def history_json(history: History) -> dict[str, Any]:
    body = {"timeSeries": [_series(one, history.window) for one in history.series]} if history.series else {}
    start, end, period = history.window
    interval = {"startTime": format_timestamp(start), "endTime": format_timestamp(end)}
    units = {metric.unit for metric in history.metrics}
    unit = {"unit": units.pop()} if len(units) == 1 else {}
    return body | unit | {"alignmentPeriod": f"{period}s", "interval": interval}


def _series(series: TimeSeries, window: Window) -> dict[str, Any]:
    metric = series.metric
    return {
        "metric": {"type": metric.name, "labels": {metric.label: series.label} if metric.label else {}},
        "resource": _resource(series.resource, metric.kind),
        "metricKind": "GAUGE" if metric.is_gauge else "DELTA",
        "valueType": "INT64",
        "unit": metric.unit,
        "points": [_point(one, window, is_gauge=metric.is_gauge) for one in series.points],
    }


def _resource(name: str, kind: str) -> dict[str, Any]:
    """Encodes the monitored resource; "global" stands for the whole project."""
    _, project, *of_resource = name.split("/")
    if not of_resource:
        return {"type": "global", "labels": {"project_id": project}}
    return {"type": f"pubsub_{kind}", "labels": {"project_id": project, f"{kind}_id": leaf(name)}}


def _point(point: Point, window: Window, *, is_gauge: bool) -> dict[str, Any]:
    """Encodes a point.  Both times of a point of a gauge are the end of the period, as in Cloud Monitoring."""
    end = min(point.start_time + window.period * SECOND, window.end)
    start = end if is_gauge else point.start_time
    interval = {"startTime": format_timestamp(start), "endTime": format_timestamp(end)}
    return {"interval": interval, "value": {"int64Value": str(point.amount)}}
