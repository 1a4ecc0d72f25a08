"""api_spec/support.toml tells the truth about the code, and misses nothing of Google's API."""

import importlib.metadata
from typing import Any

from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports import PublisherTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberTransport

from broker.api.generated.messages import POOL
from broker.core.backlog.seeking import snapshot
from broker.model import subscription, topic
from broker.model.preview import SAFEGUARDS
from tests.architecture.surface import level, reason, support, wire_messages
from tests.fixtures.registered import METHODS, ROUTES

LEVELS = {"full", "kept", "partial", "refused"}
GRPC_ONLY = {"Subscriber.StreamingPull"}
_OF_OTHER_APIS = ("IAM.", "ApiKeys.", "Quotas.", "Logging.", "Settings.", "Operations.", "Projects.")
RPCS = {f"{service}.{rpc}": entry for service, rpcs in support()["rpc"].items() for rpc, entry in rpcs.items()}
MESSAGES = support()["message"]
LISTED = MESSAGES | support()["extension_message"]
UNSUPPORTED = {
    "Topic": topic.UNSUPPORTED_FIELDS,
    "Subscription": subscription.UNSUPPORTED_FIELDS,
    "CreateSnapshotRequest": snapshot.UNSUPPORTED_FIELDS,
}


def test_every_entry_has_a_level_and_a_reason_where_it_is_not_full() -> None:
    entries = dict(RPCS)
    for message, fields in LISTED.items():
        entries |= {f"{message}.{field}": entry for field, entry in fields.items()}
    for name, entry in entries.items():
        assert level(entry) in LEVELS, name
        assert level(entry) == "full" or reason(entry), f"{name} needs a reason"


def test_every_rpc_is_routed_and_every_route_is_listed() -> None:
    routed = {route.rpc.name for route in ROUTES}
    assert RPCS.keys() - GRPC_ONLY - routed == set()
    extensions = routed - RPCS.keys()
    assert extensions - support()["extensions"].keys() == set()


def _grpc_rpcs() -> dict[str, Any]:
    return {
        f"{method.service.rpartition('.')[2]}.{method.name}": method
        for method in METHODS
        if method.service.startswith("google.")
    }


def test_every_rpc_is_served_over_grpc_as_it_is_listed() -> None:
    assert _grpc_rpcs().keys() == RPCS.keys()


def test_every_rpc_of_google_pubsub_is_described() -> None:
    described = {
        f"{service}.{name}"
        for service in ("Publisher", "Subscriber", "SchemaService")
        for name in POOL.FindServiceByName(f"google.pubsub.v1.{service}").methods_by_name
    }
    assert described == {name for name in RPCS if not name.startswith("IAMPolicy.")}


def test_the_fields_of_a_message_are_those_that_the_code_reads_and_prints() -> None:
    both = wire_messages().keys() & LISTED.keys()
    assert both
    wrong = [
        (message, set(fields) ^ set(LISTED[message]))
        for message in sorted(both)
        for fields in wire_messages()[message]
        if set(fields) != set(LISTED[message])
    ]
    assert not wrong, wrong


def test_every_message_on_the_wire_is_listed() -> None:
    assert wire_messages().keys() <= LISTED.keys()


def test_the_refused_fields_are_those_that_the_codec_refuses_with_the_same_reasons() -> None:
    listed = {
        message: {field: reason(entry) for field, entry in MESSAGES[message].items() if level(entry) == "refused"}
        for message in UNSUPPORTED
    }
    assert listed == UNSUPPORTED


def test_the_kept_fields_are_those_that_the_domain_keeps() -> None:
    for message, kept in (("Topic", topic.KEPT_FIELDS), ("Subscription", subscription.KEPT_FIELDS)):
        assert {field for field, entry in MESSAGES[message].items() if level(entry) == "kept"} == kept.keys()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3])


def _rpcs_of_the_client() -> set[str]:
    transports = {
        "Publisher": PublisherTransport,
        "Subscriber": SubscriberTransport,
        "SchemaService": SchemaServiceTransport,
    }
    return {
        f"{service}.{name.title().replace('_', '')}"
        for service, transport in transports.items()
        for name, member in vars(transport).items()
        if isinstance(member, property)
        and name not in {"host", "kind"}
        and not name.endswith(("iam_policy", "iam_permissions"))
    }


def _message_of_the_client(name: str) -> Any:
    """A message of google.pubsub.v1, or one within PushConfig."""
    return getattr(types, name, None) or getattr(types.PushConfig, name)


def test_google_has_no_rpc_and_no_field_that_is_not_listed() -> None:
    """And the other way round, as far as the installed client is as old or as new as the list."""
    installed, reviewed = (
        _version(importlib.metadata.version("google-cloud-pubsub")),
        _version(support()["reviewed"]),
    )
    theirs = {message: set(_message_of_the_client(message).meta.fields) for message in MESSAGES}
    ours = {
        message: set(fields) - {"extensions", "compatibility", "frozen", "pause", "stats", "undoable", *SAFEGUARDS}
        for message, fields in MESSAGES.items()
    }
    their_rpcs = _rpcs_of_the_client()
    our_rpcs = {rpc for rpc in RPCS if not rpc.startswith("IAMPolicy.")}  # a service of its own, of google.iam.v1
    if installed <= reviewed:
        assert their_rpcs <= our_rpcs
        assert {m: fields - ours[m] for m, fields in theirs.items() if fields - ours[m]} == {}
    if installed >= reviewed:
        assert our_rpcs <= their_rpcs
        assert {m: fields - theirs[m] for m, fields in ours.items() if fields - theirs[m]} == {}
