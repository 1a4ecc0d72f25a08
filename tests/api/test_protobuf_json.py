"""Google's messages in JSON: as protobuf's own mapping has them, and refused by the field's name and the value."""

import random
from typing import Any

import pytest
from google.protobuf import json_format

from broker.api.generated import messages
from broker.api.rest.codec.protobuf_json import fill, to_json
from broker.model.errors import InvalidArgument

NAMES = ["Topic", "Subscription", "Snapshot", "Schema", "ListSubscriptionsResponse", "PullResponse", "SeekRequest"]


def _some(name: str, chance: random.Random) -> Any:
    """A message in which about half of the fields are set."""
    message = getattr(messages, name)()
    _set_some(message, chance, depth=0)
    return message


def _set_some(message: Any, chance: random.Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        holder = getattr(message, field.name)
        if depth > 4 or chance.random() < 0.5:
            continue
        if field.message_type is None:
            value = _scalar(field)
            if field.is_repeated:
                holder.extend([value, value])
            else:
                setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            holder["key"] = "välue"
        else:
            part = holder.add() if field.is_repeated else holder
            part.SetInParent()
            if field.message_type.full_name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
                part.seconds, part.nanos = chance.choice([(0, 0), (86_400, 500_000_000), (7, 1_000), (1, 1)])
            elif not field.message_type.full_name.startswith("google.protobuf."):
                _set_some(part, chance, depth + 1)


def _scalar(field: Any) -> Any:
    if field.type == field.TYPE_BYTES:
        return b"\xff\x00"
    return {field.CPPTYPE_STRING: "täxt", field.CPPTYPE_BOOL: True, field.CPPTYPE_INT64: 2**40}.get(
        field.cpp_type, 1
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_printed_and_read_as_by_protobuf_itself(name: str) -> None:
    for seed in range(100):
        message = _some(name, random.Random(seed))
        printed = to_json(message)
        assert printed == json_format.MessageToDict(message)
        for json in (printed, json_format.MessageToDict(message, preserving_proto_field_name=True)):
            read = type(message)()
            assert fill(read, json) == {}
            assert read == message


REFUSED: list[tuple[str, Any, str]] = [
    ("Topic", [], "Invalid value at '$': a JSON object is expected, not a list."),
    ("Topic", {"bogus": 1}, "Unknown name \"bogus\" at '$': Cannot find field."),
    ("Subscription", {"retryPolicy": {"bogus": 1}}, "Unknown name \"bogus\" at 'retryPolicy': Cannot find field."),
    ("Subscription", {"retry_policy": 5}, "Invalid value at 'retryPolicy': a JSON object is expected, not 5."),
    ("Topic", {"kmsKeyName": 5}, "Invalid value at 'kmsKeyName': a text is expected, not 5."),
    ("Topic", {"labels": {"a": True}}, "Invalid value at 'labels[a]': a text is expected, not true."),
    ("Topic", {"labels": ["a"]}, "Invalid value at 'labels': a JSON object is expected, not a list."),
    ("Topic", {"satisfiesPzs": "yes"}, "Invalid value at 'satisfiesPzs': true or false is expected, not yes."),
    ("Topic", {"state": "OFF"}, "'state': one of STATE_UNSPECIFIED, ACTIVE, INGESTION_RESOURCE_ERROR is expected"),
    ("Topic", {"state": 77}, "is expected, not 77."),
    (
        "Topic",
        {"messageStoragePolicy": {"allowedPersistenceRegions": "eu"}},
        "Invalid value at 'messageStoragePolicy.allowedPersistenceRegions': a list is expected, not a text.",
    ),
    (
        "Topic",
        {"messageStoragePolicy": {"allowedPersistenceRegions": ["eu", 5]}},
        "Invalid value at 'messageStoragePolicy.allowedPersistenceRegions[1]': a text is expected, not 5.",
    ),
    (
        "Subscription",
        {"ackDeadlineSeconds": "ten"},
        "'ackDeadlineSeconds': a whole number of 32 bits is expected, not",
    ),
    (
        "Subscription",
        {"ackDeadlineSeconds": 2**31},
        "'ackDeadlineSeconds': a whole number of 32 bits is expected, not",
    ),
    (
        "Subscription",
        {"ackDeadlineSeconds": 1.5},
        "'ackDeadlineSeconds': a whole number of 32 bits is expected, not",
    ),
    (
        "Subscription",
        {"ackDeadlineSeconds": True},
        "'ackDeadlineSeconds': a whole number of 32 bits is expected, not",
    ),
    (
        "Subscription",
        {"ackDeadlineSeconds": "9" * 5_000},
        "'ackDeadlineSeconds': a whole number of 32 bits is expec",
    ),
    ("Subscription", {"expirationPolicy": {"ttl": "1d"}}, "'expirationPolicy.ttl': '1d' is not a duration such as"),
    ("Subscription", {"expirationPolicy": {"ttl": 5}}, "'expirationPolicy.ttl': '5' is not a duration such as"),
    ("SeekRequest", {"time": "tomorrow"}, "Invalid value at 'time': 'tomorrow' is not a time such as"),
    ("UpdateTopicRequest", {"updateMask": ["labels"]}, "'updateMask': a text is expected, not a list."),
    ("UpdateTopicRequest", {"topic": {"labels": 1}}, "Invalid value at 'topic.labels': a JSON object is expected"),
    ("PubsubMessage", {"data": "a"}, "Invalid value at 'data': base64 is expected, not a."),
    ("Subscription", {"pushConfig": {"pubsubWrapper": {}, "noWrapper": {}}}, "'pushConfig' (oneof), oneof field"),
    ("Topic", {"kmsKeyName": "a", "kms_key_name": "b"}, '"kms_key_name" is given in both spellings.'),
    ("Topic", {"x" * 5_000: 1}, "…"),
]


@pytest.mark.parametrize(("name", "value", "expected"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_no_message_can_have_is_refused_by_the_field_s_name(name: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        fill(getattr(messages, name)(), value)
    assert expected in refused.value.message
    assert len(refused.value.message) < 500


@pytest.mark.parametrize(
    "value", [{"oidcToken": "s3cret"}, {"pushEndpoint": {"url": "s3cret"}}, {"attributes": ["s3cret"]}]
)
def test_what_may_be_a_secret_is_not_repeated(value: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        fill(messages.PushConfig(), value)
    assert "s3cret" not in refused.value.message


def test_what_clients_send_beside_the_mapping_is_taken() -> None:
    read = messages.Subscription()
    value = {
        "ackDeadlineSeconds": "20.0",
        "retainAckedMessages": "true",
        "expirationPolicy": {"ttl": ""},
        "filter": None,
        "pushConfig": {"noWrapper": {"writeMetadata": 1}},
        "extensions": {"onePerOrderingKey": True},
    }
    assert fill(read, value) == {"extensions": {"onePerOrderingKey": True}}
    wanted = messages.Subscription(ack_deadline_seconds=20, retain_acked_messages=True)
    wanted.expiration_policy.ttl.SetInParent()
    wanted.expiration_policy.ClearField("ttl")
    wanted.push_config.no_wrapper.write_metadata = True
    assert read == wanted


@pytest.mark.parametrize("number", ["20", "20.0", "2e1", "2E+1", "0.2e2", "200e-1", 20, 20.0])
def test_a_whole_number_may_be_quoted_and_have_an_exponent(number: Any) -> None:
    """https://protobuf.dev/programming-guides/json/#field-representation."""
    read = messages.Subscription()
    fill(read, {"ackDeadlineSeconds": number})
    assert read.ack_deadline_seconds == 20


@pytest.mark.parametrize("number", ["20.5", "2.05e1", "205e-1", "2e99", "2e", ".2e2", "+20", "٢٠", "2_0", " 20"])
def test_a_quoted_number_that_is_not_whole_or_not_json_is_refused(number: str) -> None:
    with pytest.raises(InvalidArgument, match="ackDeadlineSeconds"):
        fill(messages.Subscription(), {"ackDeadlineSeconds": number})
