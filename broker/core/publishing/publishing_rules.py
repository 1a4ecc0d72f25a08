"""The rules for messages that enter the log of a topic: one `Rules` value for each entry point.

docs/publishing-rules.md has the same table, with the reason for each exception; core/publishing/preparation.py
applies it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.model.errors import FailedPrecondition, Held, InvalidArgument
from broker.model.message import NewMessage
from broker.model.names import leaf
from broker.model.publish_limits import MAX_ATTRIBUTE_VALUE_BYTES, check_count, check_messages, check_one_key
from broker.model.topic import Topic

# The attributes that tell subscribers which schema of its topic a message conforms to.
SCHEMA_ATTRIBUTES = ("googclient_schemaencoding", "googclient_schemaname", "googclient_schemarevisionid")
PUBLISH_SECONDS = 20.0  # for the schema and the transforms of a request's messages; clients wait for 60 s


class Rule(StrEnum):
    """The treatment of a property of a topic at an entry point; the values are the words of the documentation."""

    APPLIES = "yes"  # the property has its effect, and a message that breaks it is refused
    LENIENT = "if valid"  # it has its effect, but an invalid value of the message is ignored
    CHECKED = "checked"  # an invalid value of the message is refused, and a valid one has no effect
    REFUSES = "refused"  # a topic with the property accepts no message through this entry point
    WAITS = "waits"  # where a publish would be refused, the messages wait
    IGNORED = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one entry point: a column of the table.

    `by_call`: a caller gets the refusal, and is slowed down if it is refused often.  `message_name`: the beginning
    of the error about a message, given its `number` from 1 on.  `schema_refusal` and `transforms_refusal`: the
    errors for a topic that the entry point REFUSES.
    """

    message_limits: Rule = Rule.APPLIES  # sizes and names of attributes, ordering keys, no empty message
    reserved_attributes: Rule = Rule.APPLIES  # SCHEMA_ATTRIBUTES come from the schema of the topic alone
    request_count: Rule = Rule.IGNORED  # 1,000 messages at most
    one_key: Rule = Rule.IGNORED  # all messages of a request have the same ordering key
    request_size: Rule = Rule.IGNORED  # 10 MB at most
    schema: Rule = Rule.APPLIES
    transforms: Rule = Rule.APPLIES
    delay: Rule = Rule.APPLIES
    scheduled_capacity: Rule = Rule.IGNORED  # max_scheduled_messages
    expiry: Rule = Rule.APPLIES
    priority: Rule = Rule.APPLIES
    deduplication: Rule = Rule.APPLIES
    spread: Rule = Rule.IGNORED  # messages without a key use all shards; else one shard, which keeps their order
    quotas: Rule = Rule.APPLIES  # publish rates and retained bytes
    charge: Rule = Rule.APPLIES  # messages count towards publish rates
    freeze: Rule = Rule.APPLIES
    storage: Rule = Rule.APPLIES  # the storage limits of the installation
    by_call: bool = False
    message_name: str = ""
    schema_refusal: str = ""
    transforms_refusal: str = ""


_NO_TRANSFORMS = (
    "The topic has transforms, and messages are stored as they are: disable its transforms, or use a topic without"
)

PUBLISH = Rules(
    request_count=Rule.APPLIES,
    one_key=Rule.APPLIES,
    request_size=Rule.APPLIES,
    scheduled_capacity=Rule.APPLIES,
    spread=Rule.APPLIES,
    by_call=True,
)
REPLACE = replace(PUBLISH, deduplication=Rule.CHECKED)
SCHEDULE = Rules(request_size=Rule.APPLIES)
OUTBOX = Rules(
    schema=Rule.REFUSES,
    transforms=Rule.REFUSES,
    spread=Rule.APPLIES,
    quotas=Rule.IGNORED,
    freeze=Rule.WAITS,
    storage=Rule.WAITS,
    schema_refusal="Topic has a schema, which SQL cannot check",
    transforms_refusal="Topic has transforms, which SQL cannot run",
)
_COPIED = Rules(
    reserved_attributes=Rule.IGNORED,
    transforms=Rule.REFUSES,
    delay=Rule.IGNORED,
    expiry=Rule.IGNORED,
    priority=Rule.LENIENT,
    deduplication=Rule.IGNORED,
    transforms_refusal=_NO_TRANSFORMS,
)
IMPORT = replace(_COPIED, request_size=Rule.APPLIES, by_call=True, message_name="Message {number} of the part: ")
IMPORT_THAT_EXPIRES = replace(IMPORT, expiry=Rule.APPLIES)
COPY = replace(_COPIED, message_limits=Rule.IGNORED, quotas=Rule.WAITS, freeze=Rule.WAITS, storage=Rule.WAITS)
REDRIVE = COPY
_UNCHECKED = Rules(
    message_limits=Rule.IGNORED,
    reserved_attributes=Rule.IGNORED,
    schema=Rule.IGNORED,
    transforms=Rule.IGNORED,
    delay=Rule.IGNORED,
    expiry=Rule.IGNORED,
    priority=Rule.IGNORED,
    deduplication=Rule.IGNORED,
    quotas=Rule.IGNORED,
    charge=Rule.IGNORED,
    freeze=Rule.IGNORED,
    storage=Rule.IGNORED,
)
EDIT = replace(_UNCHECKED, message_limits=Rule.APPLIES, storage=Rule.APPLIES)
DEAD_LETTER = replace(_UNCHECKED, freeze=Rule.WAITS, storage=Rule.WAITS)
EVENT = replace(_UNCHECKED, freeze=Rule.WAITS)

# By the columns of the documentation, which has one more: SQL, for write_outbox_message.sql.
RULES: Mapping[str, Rules] = {
    "publish": PUBLISH,
    "replace": REPLACE,
    "schedule": SCHEDULE,
    "outbox": OUTBOX,
    "import": IMPORT,
    "import, KEEP": IMPORT_THAT_EXPIRES,
    "copy": COPY,
    "redrive": REDRIVE,
    "edit": EDIT,
    "dead letter": DEAD_LETTER,
    "event": EVENT,
}


def check_accepts(topic: Topic, rules: Rules, *, may_wait: bool = True) -> None:
    """Raise FailedPrecondition if a topic accepts no message through an entry point, or Held if messages wait.

    Unless `may_wait`, as when an operation is started, a topic that messages would wait for is refused.
    """
    if topic.freeze is not None and rules.freeze is not Rule.IGNORED:
        refusal = topic.freeze.refusal(topic.name)
        raise Held(refusal.message) if may_wait and rules.freeze is Rule.WAITS else refusal
    if topic.schema_settings is not None and rules.schema is Rule.REFUSES:
        raise FailedPrecondition(f"{rules.schema_refusal} (resource={leaf(topic.name)}).")
    if topic.transforms and topic.transforms_messages and rules.transforms is Rule.REFUSES:
        raise FailedPrecondition(f"{rules.transforms_refusal} (resource={leaf(topic.name)}).")


def check_limits(messages: Sequence[NewMessage], rules: Rules) -> None:
    """Raise InvalidArgument or FailedPrecondition for messages that break a limit of their entry point."""
    if rules.request_count is Rule.APPLIES:
        check_count(messages)
    if rules.one_key is Rule.APPLIES:
        check_one_key(messages)
    if rules.message_limits is Rule.IGNORED and rules.reserved_attributes is Rule.IGNORED:
        return
    for number, message in enumerate(messages, 1):
        try:
            _check_one(message, rules)
        except (InvalidArgument, FailedPrecondition) as error:
            if not rules.message_name:
                raise
            raise InvalidArgument(f"{rules.message_name.format(number=number)}{error.message}") from error


def _check_one(message: NewMessage, rules: Rules) -> None:
    if has_schema_attributes(message) and rules.reserved_attributes is Rule.APPLIES:
        check_messages([message])  # names the attribute
    if rules.message_limits is Rule.APPLIES:
        check_messages(without_schema_attributes([message]))
        for key in SCHEMA_ATTRIBUTES:
            if len(message.attributes.get(key, "").encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
                raise InvalidArgument(
                    f"attributes[{key!r}] is too long: the maximum is {MAX_ATTRIBUTE_VALUE_BYTES} bytes."
                )


def has_schema_attributes(message: NewMessage) -> bool:
    """Whether a message has any of SCHEMA_ATTRIBUTES."""
    return not message.attributes.keys().isdisjoint(SCHEMA_ATTRIBUTES)


def without_schema_attributes(messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """The messages without any of SCHEMA_ATTRIBUTES."""
    if not any(map(has_schema_attributes, messages)):
        return messages
    return [
        NewMessage(
            data=message.data,
            attributes={key: text for key, text in message.attributes.items() if key not in SCHEMA_ATTRIBUTES},
            ordering_key=message.ordering_key,
        )
        for message in messages
    ]
