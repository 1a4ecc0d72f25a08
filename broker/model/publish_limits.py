"""The limits of a publish request (A1).  Sources: Google's quotas page, and error messages of the service."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter

from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.message import NewMessage

MAX_MESSAGES = 1_000  # a request
MAX_REQUEST_BYTES = 10_000_000  # as protobuf: the topic, all messages and their framing
MAX_ATTRIBUTES = 100  # a message
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1_024
MAX_ORDERING_KEY_BYTES = 1_024
RESERVED_PREFIX = "goog"
# What Google's clients write into messages for OpenTelemetry, the last of them older ones of Node:
# https://cloud.google.com/pubsub/docs/open-telemetry-tracing
TRACE_KEYS = frozenset(("googclient_traceparent", "googclient_tracestate", "googclient_OpenTelemetrySpanContext"))

_DATA, _ATTRIBUTES, _ORDERING_KEY = map(attrgetter, ("data", "attributes", "ordering_key"))


def check_messages(messages: Sequence[NewMessage]) -> None:
    """Raise InvalidArgument or FailedPrecondition for a request that breaks a limit, naming the message."""
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise _wrong_count(len(messages))
    first_key = messages[0].ordering_key
    if not _are_plain(messages):
        _check_each(messages, first_key)
    if len(first_key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise InvalidArgument(
            f"messages[0].ordering_key is too long: {len(first_key.encode())} bytes, "
            f"the maximum is {MAX_ORDERING_KEY_BYTES}."
        )


def check_count(messages: Sequence[NewMessage]) -> None:
    """Raise InvalidArgument for a request of no message, or of too many."""
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise _wrong_count(len(messages))


def check_one_key(messages: Sequence[NewMessage]) -> None:
    """Raise FailedPrecondition unless all messages have the same ordering key."""
    if any(message.ordering_key != messages[0].ordering_key for message in messages):
        raise _several_keys()


def _are_plain(messages: Sequence[NewMessage]) -> bool:
    """Data, no attributes, one ordering key: what most requests are, asked without a turn of Python for each."""
    if not all(map(_DATA, messages)) or any(map(_ATTRIBUTES, messages)):
        return False
    return len(set(map(_ORDERING_KEY, messages))) == 1


def _check_each(messages: Sequence[NewMessage], first_key: str) -> None:
    for index, message in enumerate(messages):
        if not message.data and not message.attributes:
            raise _is_empty(f"messages[{index}]")
        if message.attributes:
            _check_attributes(f"messages[{index}].attributes", message.attributes)
        if message.ordering_key != first_key:
            raise _several_keys()


@contextmanager
def named(field: str, *, of: str = "messages[0]") -> Iterator[None]:
    """Name a message in errors as the caller named it (`field`), and not as a publish would (`of`)."""
    try:
        yield
    except (InvalidArgument, FailedPrecondition) as error:
        raise type(error)(error.message.replace(of, field), details=error.details) from None


def check_request_size(topic_name: str, messages: Sequence[NewMessage], encoded_size: int) -> None:
    """Raises InvalidArgument for a request over MAX_REQUEST_BYTES.

    `encoded_size` is the size of the bodies and attributes in the store's encoding.  It is within a tenth of
    protobuf's (an attribute takes up to 3 bytes more there, and then has 128 bytes at least), so that only large
    requests are measured.
    """
    keys = len(messages) * len(messages[0].ordering_key.encode())  # protobuf has the key in every message
    if encoded_size + keys + len(topic_name) < MAX_REQUEST_BYTES * 9 // 10:
        return
    size = _field(len(topic_name.encode())) + sum(_field(_message_size(message)) for message in messages)
    if size > MAX_REQUEST_BYTES:
        raise InvalidArgument(
            f"The value for request_size is too large. You passed {size} in the request, "
            f"but the maximum value is {MAX_REQUEST_BYTES}."
        )


def _message_size(message: NewMessage) -> int:
    """The bytes of a google.pubsub.v1.PubsubMessage in protobuf's encoding."""
    size = _field(len(message.data)) if message.data else 0
    if message.ordering_key:
        size += _field(len(message.ordering_key.encode()))
    for key, value in message.attributes.items():
        size += _field(_field(len(key.encode())) + _field(len(value.encode())))
    return size


def _field(length: int) -> int:
    """The bytes of a field of protobuf with a content of so many bytes: its tag, the length as a varint, itself."""
    return 1 + (max(length.bit_length(), 1) + 6) // 7 + length


def check_returned(data: bytes, attributes: Mapping[str, str], *, had: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a message that a transform may not return: the limits of a publish hold.

    Attributes that the message `had` before may stay unchanged: those that the broker adds, which tell where a dead
    letter is from or which schema a message conforms to, exceed these limits.
    """
    if not data and not attributes:
        raise _is_empty("message")
    if len(attributes) > len(had):
        _check_count("message.attributes", attributes)
    new = {key: value for key, value in attributes.items() if had.get(key) != value}
    _check_attributes("message.attributes", new)
    refuse_nul("message.attributes", new)


def refuse_nul(where: str, attributes: Mapping[str, str]) -> None:
    """Raises InvalidArgument for U+0000, which PostgreSQL's text cannot hold."""
    for key, value in attributes.items():
        if "\0" in key or "\0" in value:
            raise InvalidArgument(f"{where} has the character U+0000, which cannot be stored (attribute={key!r}).")


def _wrong_count(count: int) -> InvalidArgument:
    if not count:
        return InvalidArgument(
            "The value for message_count is too small. You passed 0 in the request, but the minimum value is 1."
        )
    return InvalidArgument(
        f"The value for message_count is too large. You passed {count} in the request, "
        f"but the maximum value is {MAX_MESSAGES}."
    )


def _several_keys() -> FailedPrecondition:
    return FailedPrecondition(
        "In a single publish request, all messages must have no ordering key or they must all have the "
        "same ordering key. [code=539b]"
    )


def _is_empty(where: str) -> InvalidArgument:
    return InvalidArgument(f"{where} is empty: a message needs data or at least one attribute.")


def _check_count(where: str, attributes: Mapping[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidArgument(f"{where} has {len(attributes)} entries, the maximum is {MAX_ATTRIBUTES}.")


def _check_attributes(where: str, attributes: Mapping[str, str]) -> None:
    _check_count(where, attributes)
    for key, value in attributes.items():
        if not key:
            raise InvalidArgument(f"{where} has an empty key.")
        # A character is at most four bytes of UTF-8: only long texts need counting.
        if len(key) * 4 > MAX_ATTRIBUTE_KEY_BYTES and len(key.encode()) > MAX_ATTRIBUTE_KEY_BYTES:
            raise InvalidArgument(f"{where} has a key over {MAX_ATTRIBUTE_KEY_BYTES} bytes ({key[:64]!r}…).")
        if len(value) * 4 > MAX_ATTRIBUTE_VALUE_BYTES and len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise InvalidArgument(
                f"{where}[{key!r}] is too long: {len(value.encode())} bytes, "
                f"the maximum is {MAX_ATTRIBUTE_VALUE_BYTES}."
            )
        if key[:4].lower() == RESERVED_PREFIX and key not in TRACE_KEYS:
            raise InvalidArgument(f"{where} has the key {key!r}: keys may not start with {RESERVED_PREFIX!r}.")
