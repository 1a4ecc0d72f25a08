"""Applies a topic's transforms to published messages, and checks whether transforms can be used at all."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

import msgspec

from broker.core.process.database_clock import DatabaseClock
from broker.core.publishing.publishing_rules import PUBLISH_SECONDS
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.features.transforms.sandboxes import Program, Sandboxes
from broker.model.errors import InvalidArgument, ResourceExhausted, Unavailable
from broker.model.message import NewMessage
from broker.model.names import project_of
from broker.model.topic import Topic
from broker.model.transforms import FIELD, Transform, Transforms, check_transforms, need_check
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import TOPIC_TRANSFORM_DROPS, TOPIC_TRANSFORM_FAILURES

_MAX_KNOWN = 1_000

_encode = msgspec.json.Encoder().encode
_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Programs:
    """The transforms of resources under the names that sandboxes know them by."""

    def __init__(self) -> None:
        self._known: dict[str, Program] = {}  # by resource

    def of(self, resource: str, transforms: Transforms) -> Program:
        program = self._known.get(resource)
        if program is None or program.transforms != transforms:
            digest = sha256(msgspec.msgpack.encode(transforms)).hexdigest()[:16]
            program = Program(project_of(resource), f"{resource}#{digest}", transforms)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[resource] = program
        return program


class TransformChecks:
    """Whether transforms can be used."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def check(self, resource: str, transforms: Transforms, where: str = FIELD) -> None:
        """Checks the transforms of a resource, or of a project.

        Raises InvalidArgument, with the place; Unavailable.
        """
        check_transforms(transforms, where)
        if need_check(transforms):
            reason = await self._sandboxes.check(project_of(resource), transforms, where)
            if reason:
                raise InvalidArgument(f"Invalid message transform: {reason}.")


class TransformTrials:
    """Trials of one message, by one transform at a time."""

    def __init__(self, sandboxes: Sandboxes, programs: Programs) -> None:
        self._sandboxes = sandboxes
        self._programs = programs

    async def run(self, project: str, transform: Transform, message: Message) -> Outcome:
        """Raises Unavailable."""
        program = self._programs.of(f"{project}/trials", (transform,))
        outcomes = await self._sandboxes.run(program, [message], seconds=PUBLISH_SECONDS)
        if not outcomes:
            raise Unavailable("Too many messages wait to be transformed; try again.")
        return outcomes[0]


class TopicTransforms:
    """The transforms of topics in a process."""

    def __init__(self, sandboxes: Sandboxes, programs: Programs, clock: DatabaseClock, counters: Counters) -> None:
        self._sandboxes = sandboxes
        self._programs = programs
        self._clock = clock
        self._counters = counters

    async def publish(self, topic: Topic, messages: Sequence[NewMessage]) -> list[NewMessage | None]:
        """Returns the messages to store in place of these; None: the message is dropped.

        Raises InvalidArgument that names the first message that a transform failed for, ResourceExhausted (they
        take too long), Unavailable.
        """
        given = [_given(message, self._clock.now()) for message in messages]
        program = self._programs.of(topic.name, topic.transforms)
        outcomes = await self._sandboxes.run(program, given, seconds=PUBLISH_SECONDS)
        counts = self._counters.topic(topic.name)
        for index, outcome in enumerate(outcomes):
            if outcome.ending is Ending.FAILED:
                counts[TOPIC_TRANSFORM_FAILURES] += 1
                raise InvalidArgument(f"A transform of the topic failed for messages[{index}]: {outcome.reason}.")
        if len(outcomes) < len(messages):
            raise ResourceExhausted(
                f"The topic's transforms take too long: {len(outcomes)} of {len(messages)} messages were done "
                f"within {PUBLISH_SECONDS:g} s; publish fewer at a time."
            )
        made = [_made(message, outcome) for message, outcome in zip(messages, outcomes, strict=True)]
        counts[TOPIC_TRANSFORM_DROPS] += made.count(None)
        return made


def _given(message: NewMessage, now: datetime) -> Message:
    attributes = _encode(message.attributes).decode() if message.attributes else "{}"
    return Message(message.data, attributes, ordering_key=message.ordering_key, millis=int(now.timestamp() * 1000))


def _made(message: NewMessage, outcome: Outcome) -> NewMessage | None:
    if outcome.ending is Ending.DROPPED:
        return None
    return NewMessage(outcome.data, _attributes(outcome.attributes), ordering_key=message.ordering_key)
