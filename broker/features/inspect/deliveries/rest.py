"""REST handlers that report the deliveries of a message, an extension."""

from typing import Any

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.delivery_state import DeliveryState
from broker.core.lag.lag import LagState
from broker.core.log.logged_message import LoggedMessage
from broker.core.pushing.endpoint_failure import endpoint_failure_fields
from broker.core.records.journal_entry import entry_json
from broker.core.viewing.message_view import SEES_ALL, MessageView, Shown
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import raw_attributes
from broker.features.dead_letters.dead_letter_state import Resolved
from broker.features.delayed.delay import ScheduledMessage
from broker.features.delayed.rest import scheduled_json
from broker.features.inspect.deliveries.report import (
    DROPPED_VERDICT,
    GONE_VERDICT,
    DeliveryReport,
    report_until_due,
    retracted_verdict,
)
from broker.features.inspect.deliveries.service import (
    DeliveryReports,
    DeliveryReportService,
    DroppedMessage,
    GoneMessage,
    Timeline,
)
from broker.features.retraction.retraction import Retraction
from broker.model.message import PubsubMessage
from broker.model.message_id import id_of, message_id
from broker.model.page import parse_page
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp


async def get_message(service: DeliveryReportService, views: MessageViews, call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/messages/")
    return await _get(service, call, topic, message_id, await views.of(call, topic))


async def find_message(service: DeliveryReportService, views: MessageViews, call: Call) -> bytes:
    project, _, message_id = call.name.rpartition("/messages/")
    topic = await service.topic_of(project, message_id)
    view = SEES_ALL
    if call.gate is not None:  # permission on the project does not cover the data of messages
        required = await call.gate.allow(call.caller, permissions.LOOK, topic)
        view = await views.of(call, topic, required=required)
    return await _get(service, call, topic, message_id, view)


async def get_subscription_message(service: DeliveryReportService, call: Call) -> bytes:
    subscription, _, message_id = call.name.rpartition("/messages/")
    found = await service.get_timeline(subscription, message_id, hung_up=call.exchange.hung_up)
    return encode_resource(timeline_json(found))


async def _get(service: DeliveryReportService, call: Call, topic: str, message_id: str, view: MessageView) -> bytes:
    preview_bytes = decode_preview_bytes(call.query)

    async def may_see(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, permissions.GET_SUBSCRIPTION, name)

    found = await service.get_message(
        topic,
        message_id,
        parse_page(*decode_page_parameters(call.query)),
        preview_bytes=view.read_bytes(preview_bytes),
        may_see=may_see,
        hung_up=call.exchange.hung_up,
    )
    message = found.message
    shown = Shown("{}", b"")
    if isinstance(message, ScheduledMessage | LoggedMessage):
        shown = await view.show(message.attributes or "{}", message.data, message.data_size, preview_bytes)
    return encode_resource(reports_json(found, shown))


# --- JSON ---------------------------------------------------------------------------------------------------


_TIMES = {DeliveryState.OUTSTANDING: "ackDeadline", DeliveryState.RETRYING: "retryTime"}


def reports_json(found: DeliveryReports, seen: Shown) -> dict[str, Any]:
    """Returns the JSON of a message, as the caller sees it, and of its report for each subscription."""
    message = found.message
    body: dict[str, Any] = {"topic": found.topic}
    if isinstance(message, ScheduledMessage):
        shown = scheduled_json(message, seen)
        body |= {"deliverTime": shown.pop("deliverTime"), "verdict": report_until_due(found.topic, message).verdict}
        del shown["createTime"]
        body["dataSize"] = shown.pop("dataSize")
        shown.pop("masked", None)
        body["message"] = shown
    elif isinstance(message, Retraction):
        body |= _retracted(found.message_id, message)
    elif isinstance(message, GoneMessage | DroppedMessage):
        verdict = GONE_VERDICT if isinstance(message, GoneMessage) else DROPPED_VERDICT
        body |= {"message": {"messageId": found.message_id}, "verdict": verdict}
    else:
        body["message"] = PubsubMessage(
            data=seen.data,
            attributes=raw_attributes(seen),
            message_id=id_of(message.shard_id, message),
            publish_time=format_timestamp(message.publish_time),
            ordering_key=message.ordering_key or "",
        )
        body["dataSize"] = message.data_size
    if seen.masked is not None:
        body["masked"] = seen.masked
    body["subscriptions"] = [_report_json(*one) for one in found.reports]
    return body | ({"nextPageToken": found.next_page_token} if found.next_page_token else {})


def _retracted(message_id_: str, retraction: Retraction) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message": {"messageId": message_id_, "publishTime": format_timestamp(retraction.publish_time)},
        "cancelTime" if retraction.cancelled else "retractTime": format_timestamp(retraction.retracted_at),
        "verdict": f"{retracted_verdict(retraction)}.",
    }
    if retraction.seq is None:
        del body["message"]["publishTime"]
    if retraction.by:
        body["cancelledBy" if retraction.cancelled else "retractedBy"] = retraction.by
    if retraction.replaced_by is not None:
        body["replacementId"] = message_id(*retraction.replaced_by)
    return body


def timeline_json(found: Timeline) -> dict[str, Any]:
    """Returns the JSON of one report, if it is known, and of the entries of the journal."""
    report: dict[str, Any] = {"subscription": found.subscription.name}
    if found.report is not None:
        report = _report_json(found.subscription, found.report)
    return {**report, "messageId": found.message_id, "timeline": [entry_json(entry) for entry in found.entries]}


def _resolved(resolved: Resolved) -> dict[str, Any]:
    body: dict[str, Any] = {"deadLetterResolution": resolved.resolution}
    if resolved.at is not None:
        body["deadLetterResolveTime"] = format_timestamp(resolved.at)
    if resolved.by:
        body["deadLetterResolvedBy"] = resolved.by
    if resolved.successor is not None:
        body["deadLetterSuccessorId"] = message_id(*resolved.successor)
    return body


def _report_json(subscription: Subscription, report: DeliveryReport) -> dict[str, Any]:
    body: dict[str, Any] = {"subscription": subscription.name, "state": report.state, "verdict": report.verdict}
    dead_letter = report.dead_letter
    if report.attempt_number is not None:
        body["deliveryAttempt"] = report.attempt_number
    if report.delivered_at is not None:
        body["deliverTime"] = format_timestamp(report.delivered_at)
    if report.due_at is not None:
        body[_TIMES[report.state]] = format_timestamp(report.due_at)
    if report.endpoint is not None:
        body |= {
            "deliveryState": LagState.ENDPOINT_FAILING,
            "endpointFailure": endpoint_failure_fields(report.endpoint),
        }
    if report.entry is not None:
        reported = entry_json(report.entry)
        body |= {"endTime": reported.pop("time"), **reported}
        del body["event"]
    if report.blocked_by_message_id:
        body["blockedByMessageId"] = report.blocked_by_message_id
    if dead_letter is not None:
        body["deadLetterMessageId"] = dead_letter.message_id
        body["deadLetterTime"] = format_timestamp(dead_letter.publish_time)
        body["deadLetterReason"] = dead_letter.reason
        if dead_letter.resolved is not None:
            body |= _resolved(dead_letter.resolved)
    return body
