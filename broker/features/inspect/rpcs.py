"""The rows of calls: what topics, subscriptions and messages hold, as operators read it."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import (
    GET_SUBSCRIPTION,
    LOOK,
    LOOK_ABOVE,
    LOOK_AT_BACKLOG,
    LOOK_AT_DATA,
    Need,
    Needs,
    On,
)
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, SUBSCRIPTION, TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.inspect import (
    backlog_rest,
    consumer_rest,
    data_rest,
    histogram_rest,
    publisher_rest,
    tail_rest,
    topic_rest,
)
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.features.inspect.consumer_service import ConsumerService
from broker.features.inspect.data_service import MessageDataService
from broker.features.inspect.deliveries import rest
from broker.features.inspect.deliveries.service import DeliveryReportService
from broker.features.inspect.histogram_service import HistogramService
from broker.features.inspect.publisher_service import TopicPublisherService
from broker.features.inspect.tail_service import TailService
from broker.features.inspect.topic_service import TopicMessageService


def make_rpcs(
    *,
    consumers: ConsumerService,
    publishers: TopicPublisherService,
    delivery_reports: DeliveryReportService,
    backlog_messages: BacklogMessageService,
    topic_messages: TopicMessageService,
    message_data: MessageDataService,
    views: MessageViews,
    histograms: HistogramService,
    tails: TailService,
) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ListTopicPublishers", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.topics.get")),  # as ListTopicSubscriptions
            rest=[
                Rest(
                    "GET", f"{TOPIC}:publishers", "ListTopicPublishers",
                    partial(publisher_rest.list_publishers, publishers), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListConsumers", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_SUBSCRIPTION,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/consumers", "ListConsumers",
                    partial(consumer_rest.list_consumers, consumers), ("pageSize",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="GetMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            # Lists only the subscriptions that the caller may get.
            needs=LOOK_ABOVE,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/messages/*", "GetMessage",
                    partial(rest.get_message, delivery_reports, views), (*PAGE, "previewBytes"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="GetMessageData", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_AT_DATA,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/messages/*:data", "GetMessageData",
                    partial(data_rest.get_data, message_data, views), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="FindMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.topics.list", on=On.ABOVE)),  # and LOOK on the topic of the message
            rest=[
                Rest(
                    "GET", f"{PROJECT}/messages/*", "FindMessage",
                    partial(rest.find_message, delivery_reports, views), (*PAGE, "previewBytes"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="GetSubscriptionMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.get", on=On.ABOVE)),  # shows no message bodies
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/messages/*", "GetSubscriptionMessage",
                    partial(rest.get_subscription_message, delivery_reports), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListSubscriptionMessages", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_AT_BACKLOG,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/messages", "ListSubscriptionMessages",
                    partial(backlog_rest.list_messages, backlog_messages, views),
                    (*PAGE, "contains", "filter", "previewBytes", "state"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListTopicMessages", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/messages", "ListTopicMessages",
                    partial(topic_rest.list_messages, topic_messages, views),
                    (
                        *PAGE, "contains", "endTime", "filter", "order", "orderingKey", "previewBytes", "startTime",
                    ),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="GetTopicHistogram", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.topics.get")),  # shows no message
            rest=[
                Rest(
                    "GET", f"{TOPIC}:histogram", "GetTopicHistogram",
                    partial(histogram_rest.get_histogram, histograms), ("buckets", "endTime", "startTime"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="TailTopic", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK,
            rest=[
                Rest(
                    "GET", f"{TOPIC}:tail", "TailTopic",
                    partial(tail_rest.tail_topic, tails, views), ("filter", "previewBytes", "startTime"),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
