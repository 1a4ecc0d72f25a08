"""Tests transforms before they are applied to messages (A11)."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from broker.core.catalog import topic_rows as topics
from broker.core.log.logged_message import LoggedMessage, read_message
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.features.transforms.sandbox.jobs import Ending, Message
from broker.features.transforms.topic_transforms import TransformChecks, TransformTrials
from broker.model.errors import InvalidArgument, NotFound
from broker.model.message import NewMessage
from broker.model.message_id import id_of, parse_message_id
from broker.model.timestamps import format_timestamp
from broker.model.transforms import Transforms


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`transforms` (None: those of the `topic` or `subscription`) and a `message`, or the id of one that the topic,
    or the topic of the subscription, retains.
    """

    transforms: Transforms | None = None
    topic: str = ""
    subscription: str = ""
    message: NewMessage | None = None
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a transform: the message, or that it was dropped, or that it failed, with the reason."""

    ending: Ending
    message: Message
    reason: str = ""


class TransformService:
    """Trials of transforms.  They publish, deliver and change nothing."""

    def __init__(
        self, database: Database, clock: DatabaseClock, checks: TransformChecks, trials: TransformTrials
    ) -> None:
        self._database = database
        self._clock = clock
        self._checks = checks
        self._trials = trials

    async def validate_message_transform(self, project: str, transforms: Transforms) -> None:
        """Raises InvalidArgument unless a topic or subscription could have them; Unavailable."""
        await self._checks.check(f"{project}/", transforms, "messageTransform")

    async def test_message_transforms(self, project: str, trial: Trial) -> Sequence[Step]:
        """The message after each of the transforms, until it is dropped or one fails.

        Raises InvalidArgument, NotFound (the topic or subscription, a message that is not retained), Unavailable.
        """
        if trial.topic and trial.subscription:
            raise InvalidArgument("topic and subscription are both given: a message goes through those of one.")
        if (trial.message is None) == (not trial.message_id):
            raise InvalidArgument("One of message and messageId says what to transform.")
        transforms, shard_ids = await self._of_resource(trial)
        if trial.transforms is not None:
            transforms = trial.transforms
            await self._checks.check(f"{project}/", transforms)
        elif transforms is None:
            raise InvalidArgument("One of messageTransforms, topic and subscription says by what to transform.")
        now = int(self._clock.now().timestamp() * 1000)
        message = _given(trial.message, now) if trial.message is not None else await self._read(trial, shard_ids)
        steps: list[Step] = []
        for transform in transforms:
            if transform.disabled:
                continue
            outcome = await self._trials.run(project, transform, message)
            message = replace(message, data=outcome.data, attributes=outcome.attributes)
            steps.append(Step(outcome.ending, message, outcome.reason))
            if outcome.ending is not Ending.KEPT:
                break
        return steps

    async def _of_resource(self, trial: Trial) -> tuple[Transforms | None, Sequence[int]]:
        """The transforms of the topic or subscription that is named, and the shards of what it has."""
        if not trial.topic and not trial.subscription:
            return None, ()
        async with self._database.transaction() as connection:
            if trial.subscription:
                subscription = await existing_subscription(connection, trial.subscription)
                return subscription.transforms, subscription.shard_ids
            topic = await topics.find_topic(connection, name=trial.topic)
        if topic is None:
            raise topic_not_found(trial.topic)
        return topic.transforms, topic.shard_ids

    async def _read(self, trial: Trial, shard_ids: Sequence[int]) -> Message:
        if not shard_ids:
            raise InvalidArgument("With messageId, topic or subscription says whose message it is.")
        shard_id, id_seq = parse_message_id(trial.message_id)
        found = None
        if shard_id in shard_ids:
            async with self._database.hot() as hot:
                found = await read_message(hot, shard_id=shard_id, id_seq=id_seq)
        if found is None:
            raise NotFound(f"There is no such message, or it is retained no more (messageId={trial.message_id}).")
        return _stored(found)


def _given(message: NewMessage, now: int) -> Message:
    attributes = msgspec.json.encode(message.attributes).decode()
    return Message(message.data, attributes, ordering_key=message.ordering_key, millis=now)


def _stored(message: LoggedMessage) -> Message:
    return Message(
        message.data,
        message.attributes,
        id_of(message.shard_id, message),
        format_timestamp(message.publish_time),
        message.ordering_key or "",
        int(message.publish_time.timestamp() * 1000),
    )
