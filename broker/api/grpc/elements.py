"""Limits the number of elements in the lists and maps of a request, before any object is created for them.

The limits are those of the API.  Ten megabytes of empty messages are five million elements, and would take half a
gigabyte of objects.
"""

from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.access.principals.policy import MAX_MEMBERS, MAX_TESTED
from broker.api.grpc.wire import LENGTH, Buffer, count_varints, fields
from broker.api.steps import LONG_BODY, Steps
from broker.model.ack_id import MAX_ACK_IDS
from broker.model.errors import InvalidArgument
from broker.model.publish_limits import MAX_ATTRIBUTES, MAX_MESSAGES
from broker.model.resource_limits import MAX_LABELS
from broker.model.transforms import MAX_TRANSFORMS

OTHER_LIMIT = 1_000  # elements of a list or map that has no limit of its own
MAX_FIELDS = 120_000  # of a request, at all depths; 1,000 messages with 100 attributes each have 105,000
LIMITS = {
    "google.pubsub.v1.PublishRequest.messages": MAX_MESSAGES,
    "google.pubsub.v1.PubsubMessage.attributes": MAX_ATTRIBUTES,
    "google.pubsub.v1.AcknowledgeRequest.ack_ids": MAX_ACK_IDS,
    "google.pubsub.v1.ModifyAckDeadlineRequest.ack_ids": MAX_ACK_IDS,
    "google.pubsub.v1.StreamingPullRequest.ack_ids": MAX_ACK_IDS,
    "google.pubsub.v1.StreamingPullRequest.modify_deadline_ack_ids": MAX_ACK_IDS,
    "google.pubsub.v1.StreamingPullRequest.modify_deadline_seconds": MAX_ACK_IDS,
    "google.iam.v1.TestIamPermissionsRequest.permissions": MAX_TESTED,
    "google.iam.v1.Policy.bindings": MAX_MEMBERS,
    "google.iam.v1.Binding.members": MAX_MEMBERS,
    "google.pubsub.v1.Topic.labels": MAX_LABELS,
    "google.pubsub.v1.Subscription.labels": MAX_LABELS,
    "google.pubsub.v1.Snapshot.labels": MAX_LABELS,
    "google.pubsub.v1.CreateSnapshotRequest.labels": MAX_LABELS,
    "google.pubsub.v1.Topic.message_transforms": MAX_TRANSFORMS,
    "google.pubsub.v1.Subscription.message_transforms": MAX_TRANSFORMS,
}
FEW = LONG_BODY // 2
MAX_DEPTH = 100  # of nested messages; protobuf's decoder refuses more
_FIELDS_OF_STEP = 1_000
_FIELD_COST = 200  # bytes that could be read in the time that a field takes


class _Field(NamedTuple):
    """`limit` of its elements; 0: it is no list.  `within`: what its messages are; None: they are not read."""

    name: str
    limit: int
    is_number: bool
    within: Descriptor | None


def check_elements(message_class: Any, body: Buffer) -> Steps[None]:
    """Raises InvalidArgument for a list or map with more elements than it may have, and beyond MAX_FIELDS.

    A request that cannot have more than FEW elements is not read: decoded, they are less than a megabyte.
    """
    if len(body) < LONG_BODY:
        return
    tags = _tags_of(message_class.DESCRIPTOR)
    if tags and sum(map(body.count, tags)) <= FEW:
        return
    known = _fields_of(message_class.DESCRIPTOR)
    check = _Check(body)
    counts: dict[int, int] = {}
    left = 0
    for field in fields(body, 0, len(body)):
        if check.seen >= left:
            left = check.seen + _FIELDS_OF_STEP
            yield _FIELDS_OF_STEP * _FIELD_COST
        try:
            check.field(field, known, counts, 1)
        except _TooMany as refusal:
            where, limit = ".".join(refusal.path), refusal.limit
            raise InvalidArgument(f"{where} has more than {limit} elements, the maximum.") from None


class _TooMany(Exception):
    """The list or map at `path`, from the outermost field on, has too many elements."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__()
        self.path = [name]
        self.limit = limit


class _Check:
    """`seen`: the fields so far, at all depths."""

    def __init__(self, body: Buffer) -> None:
        self.seen = 0
        self._body = body

    def field(
        self, field: tuple[int, int, int, int], known: dict[int, _Field], counts: dict[int, int], depth: int
    ) -> None:
        """`counts`: the elements so far, by the numbers of the message's fields."""
        number, kind, start, stop = field
        self.seen += 1
        if self.seen > MAX_FIELDS:
            raise InvalidArgument(f"The request has more than {MAX_FIELDS} fields, the maximum.")
        this = known.get(number)
        if this is None:
            return
        if this.limit:
            is_packed = kind == LENGTH and this.is_number
            counts[number] = counts.get(number, 0) + (count_varints(self._body, start, stop) if is_packed else 1)
            if counts[number] > this.limit:
                raise _TooMany(this.name, this.limit)
        if this.within is not None and kind == LENGTH and depth < MAX_DEPTH:
            try:
                self._message(start, min(stop, len(self._body)), _fields_of(this.within), depth + 1)
            except _TooMany as refusal:
                refusal.path.insert(0, f"{this.name}[{counts[number] - 1}]" if this.limit else this.name)
                raise

    def _message(self, at: int, end: int, known: dict[int, _Field], depth: int) -> None:
        counts: dict[int, int] = {}
        for field in fields(self._body, at, end):
            self.field(field, known, counts, depth)


@cache
def _fields_of(descriptor: Descriptor) -> dict[int, _Field]:
    """The fields of a message that are read: lists, maps and messages."""
    found: dict[int, _Field] = {}
    for field in descriptor.fields:
        message = field.message_type
        if not field.is_repeated and message is None:
            continue
        is_map = message is not None and message.GetOptions().map_entry
        limit = LIMITS.get(field.full_name, OTHER_LIMIT) if field.is_repeated else 0
        is_number = message is None and field.cpp_type != FieldDescriptor.CPPTYPE_STRING
        found[field.number] = _Field(field.name, limit, is_number, None if is_map else message)
    return found


@cache
def _tags_of(descriptor: Descriptor) -> tuple[int, ...]:
    """The bytes that the elements of lists and maps begin with, at all depths; none if some have no tag."""
    tags: set[int] = set()
    messages, left = {descriptor}, [descriptor]
    while left:
        for field in left.pop().fields:
            if field.is_repeated:
                if field.is_packed:
                    return ()
                first = (field.number << 3 | LENGTH) & 0x7F
                tags |= {first, first | 0x80}  # a tag may be written with more bytes than it needs
            message = field.message_type
            if message is not None and message not in messages:
                messages.add(message)
                left.append(message)
    return tuple(tags)
