"""The calls about topics of Publisher, and the conversion from and to google.pubsub.v1.Topic."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.api.generated import messages
from broker.api.google.call import Answer, ResourceCall
from broker.api.google.fields import put_resource, read_resource
from broker.api.google.requests import page_of, project_name, resource_name
from broker.api.google.schema_settings import settings_from, settings_message
from broker.api.google.transforms import transform_messages, transforms_from
from broker.api.google.updates import extensions_named, update_of
from broker.api.permissions import visible_in
from broker.core.resources.freeze_rest import freeze_json
from broker.core.resources.topic_extensions import extensions_from, put_extensions
from broker.core.resources.topic_service import TopicService
from broker.model.field_mask import Update
from broker.model.topic import KEPT_FIELDS, UNSUPPORTED_FIELDS, Topic
from broker.model.topic_extensions import NAMES

_MAPPED_HERE = ("schema_settings",)  # whose encoding is an enum


def topic_from(message: Any) -> Topic:
    """The topic that a call wants.  Raises InvalidArgument."""
    given = read_resource(Topic, message, kept=KEPT_FIELDS, unsupported=UNSUPPORTED_FIELDS, without=_MAPPED_HERE)
    return Topic(
        **given,
        schema_settings=settings_from(message.schema_settings) if message.HasField("schema_settings") else None,
        transforms=transforms_from(message.message_transforms),
        extensions=extensions_from(message),
    )


def topic_message(topic: Topic) -> Any:
    message = messages.Topic(state=topic.state or None)
    put_resource(message, topic, without=_MAPPED_HERE)
    if topic.schema_settings is not None:
        message.schema_settings.CopyFrom(settings_message(topic.schema_settings))
    message.message_transforms.extend(transform_messages(topic.transforms))
    put_extensions(message, topic.extensions)
    return message


def topic_fields(topic: Topic) -> Mapping[str, Any]:
    """Returns the fields of a topic's JSON that Google's message lacks."""
    return {**topic.kept, **({} if topic.freeze is None else {"frozen": freeze_json(topic.freeze)})}


def topic_answer(topic: Topic) -> Answer:
    return Answer(topic_message(topic), topic, topic_fields)


async def create_topic(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    return topic_answer(await service.create_topic(topic_from(request)))


async def get_topic(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    return topic_answer(await service.get_topic(resource_name(request.topic, "topics")))


async def update_topic(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    resource_name(request.topic.name, "topics")
    update = update_of(request.topic, list(request.update_mask.paths), topic_message, topic_from)
    return topic_answer(await service.update_topic(_with_extensions(update, request.topic)))


def _with_extensions(update: Update[Topic], given: Any) -> Update[Topic]:
    names = extensions_named(update.paths, "Topic", NAMES)
    if not names:
        return update
    wanted = extensions_from(given)
    return replace(
        update,
        wanted=lambda topic: replace(update.wanted(topic), extensions=topic.extensions.with_those(names, wanted)),
    )


async def delete_topic(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.topic, "topics")
    return Answer(messages.Empty(), preview=await service.delete_topic(name, call.safeguards))


async def list_topics(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.project)
    page = page_of(request, visible_in(call.allowed, project))
    view = service.find_view(call.view)
    topics, token = await service.list_topics(project, page)
    added = {} if view is None else await view(call.caller, project, topics)
    response = messages.ListTopicsResponse(topics=map(topic_message, topics), next_page_token=token)
    return Answer(response, topics, lambda topic: {**topic_fields(topic), **added.get(topic.name, {})})


async def list_topic_subscriptions(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    topic = resource_name(request.topic, "topics")
    names, token = await service.list_topic_subscriptions(topic, page_of(request))
    return Answer(messages.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token))


async def list_topic_snapshots(service: TopicService, call: ResourceCall, request: Any) -> Answer:
    topic = resource_name(request.topic, "topics")
    names, token = await service.list_topic_snapshots(topic, page_of(request))
    return Answer(messages.ListTopicSnapshotsResponse(snapshots=names, next_page_token=token))
