"""What a message must satisfy, and what it may ask for, by the way in which it enters the log of a topic.

The table with the reason for each cell is docs/publishing-rules.md; runtime/preparation.py applies it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.domain.errors import FailedPrecondition, Held
from broker.domain.message import NewMessage
from broker.domain.names import leaf
from broker.domain.topic import Topic

# The attributes by which a topic's schema describes a message.
SCHEMA_ATTRIBUTES = ("googclient_schemaencoding", "googclient_schemaname", "googclient_schemarevisionid")


class Rule(StrEnum):
    """What an entry point does about a property of a topic; the values are the words of the documentation."""

    APPLIES = "yes"  # it has its effect, and a message that breaks it is refused
    LENIENT = "if valid"  # it has its effect, unless the message's value for it is not valid
    CHECKED = "checked"  # the message's value for it must be valid, and has no effect
    REFUSES = "refused"  # a topic that has it takes nothing by this way
    WAITS = "waits"  # messages wait while it would refuse them
    IGNORED = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one entry point: a row of the table.

    `keeps_schema_attributes`: messages may have attributes by which the schema of another topic has described
    them.  `by_call`: a caller gets the refusal, and is slowed down if it is refused often.  `message_name`: begins
    the error about a message, given its `number` from 1 on.  `schema_refusal` and `transforms_refusal`: the errors
    of a topic that the entry point REFUSES.
    """

    message_limits: Rule = Rule.APPLIES  # sizes and names of attributes, ordering keys, no empty message
    request_count: Rule = Rule.IGNORED  # 1,000 messages at most
    one_key: Rule = Rule.IGNORED  # the messages of a request have one ordering key
    request_size: Rule = Rule.IGNORED  # 10 MB at most
    schema: Rule = Rule.APPLIES
    transforms: Rule = Rule.APPLIES
    delay: Rule = Rule.APPLIES
    waiting_room: Rule = Rule.IGNORED  # max_scheduled_messages
    expiry: Rule = Rule.APPLIES
    priority: Rule = Rule.APPLIES
    deduplication: Rule = Rule.APPLIES
    spread: Rule = Rule.IGNORED  # messages without a key use all shards; else one, in which their order is kept
    quotas: Rule = Rule.APPLIES  # publish rates and retained bytes
    charge: Rule = Rule.APPLIES  # what is stored counts for publish rates
    freeze: Rule = Rule.APPLIES
    storage: Rule = Rule.APPLIES  # the storage limits of the installation
    keeps_schema_attributes: bool = False
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
    waiting_room=Rule.APPLIES,
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
SQL = replace(OUTBOX, freeze=Rule.APPLIES)
_COPIED = Rules(
    transforms=Rule.REFUSES,
    delay=Rule.IGNORED,
    expiry=Rule.IGNORED,
    priority=Rule.LENIENT,
    deduplication=Rule.IGNORED,
    keeps_schema_attributes=True,
    transforms_refusal=_NO_TRANSFORMS,
)
IMPORT = replace(_COPIED, request_size=Rule.APPLIES, by_call=True, message_name="Message {number} of the part: ")
IMPORT_THAT_EXPIRES = replace(IMPORT, expiry=Rule.APPLIES)
COPY = replace(_COPIED, message_limits=Rule.IGNORED, quotas=Rule.WAITS, freeze=Rule.WAITS, storage=Rule.WAITS)
REDRIVE = COPY
EDIT = Rules(
    schema=Rule.IGNORED,
    transforms=Rule.IGNORED,
    delay=Rule.IGNORED,
    expiry=Rule.IGNORED,
    priority=Rule.IGNORED,
    deduplication=Rule.IGNORED,
    quotas=Rule.IGNORED,
    charge=Rule.IGNORED,
    freeze=Rule.IGNORED,
    keeps_schema_attributes=True,
)

# By the names of the documentation.  `SQL` is what the functions for applications do when they are called.
RULES: Mapping[str, Rules] = {
    "publish": PUBLISH,
    "replace": REPLACE,
    "schedule": SCHEDULE,
    "SQL": SQL,
    "outbox": OUTBOX,
    "import": IMPORT,
    "import with expiry=KEEP": IMPORT_THAT_EXPIRES,
    "copy": COPY,
    "redrive": REDRIVE,
    "edit": EDIT,
}


def check_topic(topic: Topic, rules: Rules, *, may_wait: bool = True) -> None:
    """Raises FailedPrecondition for a topic that takes nothing by an entry point, or Held if the messages wait.

    Where nothing `may_wait`, as when an operation is started, what would wait is refused.
    """
    if topic.freeze is not None and rules.freeze is not Rule.IGNORED:
        refusal = topic.freeze.refusal(topic.name)
        raise Held(refusal.message) if may_wait and rules.freeze is Rule.WAITS else refusal
    if topic.schema_settings is not None and rules.schema is Rule.REFUSES:
        raise FailedPrecondition(f"{rules.schema_refusal} (resource={leaf(topic.name)}).")
    if topic.transforms and topic.transforms_messages and rules.transforms is Rule.REFUSES:
        raise FailedPrecondition(f"{rules.transforms_refusal} (resource={leaf(topic.name)}).")


def without_schema_attributes(messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """The messages without the attributes by which a topic's schema has described them."""
    if all(message.attributes.keys().isdisjoint(SCHEMA_ATTRIBUTES) for message in messages):
        return messages
    return [
        NewMessage(
            data=message.data,
            attributes={key: text for key, text in message.attributes.items() if key not in SCHEMA_ATTRIBUTES},
            ordering_key=message.ordering_key,
        )
        for message in messages
    ]
