"""Topics and subscriptions of a broker without the features that some of their fields need."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.access.secrets.secrets import Secrets
from broker.core.backlog.seeking.backlog_loss import measure_backlog
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.resources.topic_service import TopicService
from broker.model.deduplication import Deduplication
from broker.model.errors import FailedPrecondition
from broker.model.field_mask import Update
from broker.model.field_transform import Fields
from broker.model.priorities import Priorities
from broker.model.schema_settings import SchemaSettings
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from broker.model.topic_extensions import TopicExtensions
from broker.model.transforms import Transform
from tests.fixtures.core import make_core
from tests.fixtures.log import Log

_TRANSFORMS = (Transform(fields=Fields(set={"attributes.mark": "seen"})),)
_OTHER_TRANSFORMS = (Transform(fields=Fields(set={"attributes.mark": "other"})),)
_PLAIN = Topic(name="projects/p/topics/plain")
EXTENDED = {
    "extensions.deduplication": replace(
        _PLAIN, extensions=TopicExtensions(deduplication=Deduplication(timedelta(minutes=10)))
    ),
    "messageTransforms": replace(_PLAIN, transforms=_TRANSFORMS),
    "schemaSettings": replace(
        _PLAIN, schema_settings=SchemaSettings(schema="projects/p/schemas/s", encoding="JSON")
    ),
    "extensions.delay": replace(_PLAIN, extensions=TopicExtensions(delay=True)),
    "extensions.expiry": replace(_PLAIN, extensions=TopicExtensions(expiry=True)),
    "extensions.priorities": replace(_PLAIN, extensions=TopicExtensions(priorities=Priorities(3))),
}


@pytest.fixture
async def core(log: Log) -> AsyncIterator[Core]:
    tasks, clock = Tasks(), DatabaseClock(log.database)
    await clock.synchronise()
    yield make_core(log.database, clock, tasks)
    await tasks.close()


@pytest.fixture
def topic_service(core: Core) -> TopicService:
    return TopicService(core, supported=())


@pytest.fixture
def subscription_service(core: Core) -> SubscriptionService:
    return SubscriptionService(core, secrets=Secrets(), measure_backlog=measure_backlog)


def _update(wanted: Topic, *fields: str) -> Update[Topic]:
    return Update(wanted.name, fields, lambda _: wanted)


@pytest.mark.parametrize("path", EXTENDED)
async def test_a_topic_gets_no_extension_that_its_broker_does_not_have(
    topic_service: TopicService, path: str
) -> None:
    refusal = rf"This broker does not support {path} \(resource=plain\)\."
    with pytest.raises(FailedPrecondition, match=refusal):
        await topic_service.create_topic(EXTENDED[path])
    await topic_service.create_topic(_PLAIN)
    named = ("extensions", "message_transforms", "schema_settings")
    with pytest.raises(FailedPrecondition, match=refusal):
        await topic_service.update_topic(_update(EXTENDED[path], *named))
    assert (await topic_service.get_topic(_PLAIN.name)).publish_properties == ()


async def test_a_topic_that_has_an_extension_can_be_changed_and_lose_it(
    topic_service: TopicService, log: Log
) -> None:
    had = replace(log.topic, transforms=_TRANSFORMS)
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=had)
    labelled = await topic_service.update_topic(_update(replace(had, labels={"team": "a"}), "labels"))
    assert (labelled.labels, labelled.transforms) == ({"team": "a"}, _TRANSFORMS)
    with pytest.raises(FailedPrecondition, match="does not support messageTransforms"):
        await topic_service.update_topic(_update(replace(had, transforms=_OTHER_TRANSFORMS), "message_transforms"))
    assert not (await topic_service.update_topic(_update(log.topic, "message_transforms"))).transforms


async def test_a_subscription_gets_no_transforms_that_its_broker_does_not_have(
    subscription_service: SubscriptionService, log: Log
) -> None:
    wanted = Subscription(name="projects/p/subscriptions/plain", topic=log.topic.name)
    changed = replace(wanted, transforms=_TRANSFORMS)
    refusal = r"This broker does not support messageTransforms \(resource=plain\)\."
    with pytest.raises(FailedPrecondition, match=refusal):
        await subscription_service.create_subscription(changed)
    await subscription_service.create_subscription(wanted)
    update = Update(wanted.name, ["message_transforms"], lambda _: changed)
    with pytest.raises(FailedPrecondition, match=refusal):
        await subscription_service.update_subscription(update)
    async with log.database.transaction() as connection:
        found = await subscriptions.find_subscription(connection, name=wanted.name)
    assert found is not None
    assert found.transforms == ()


def test_a_topic_whose_transforms_are_disabled_is_plain() -> None:
    disabled = (Transform(fields=Fields(set={"attributes.mark": "seen"}), disabled=True),)
    assert replace(_PLAIN, transforms=disabled).publish_properties == ()
