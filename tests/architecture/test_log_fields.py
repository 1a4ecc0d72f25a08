"""Whatever the log says of a topic or a subscription, it says in a field too (docs/operations.md#fields)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from broker.telemetry.log import fields_of
from tests.fixtures.broker import repository

_CHANGES = {"begins", "happens", "ends", "tell"}
_WRITING = {"info", "warning", "error", "exception", "critical", "log"}

# Their `name` is the full name of a resource: StateChanges makes the fields of it.
_BY_NAME = {
    "broker/runtime/dead_letter_news.py: ends _DENIED",
    "broker/runtime/dead_letter_news.py: ends _MISSING",
    "broker/runtime/dead_letter_news.py: ends _UNREAD",
    "broker/runtime/relay.py: happens 'staged messages that wait'",
    "broker/runtime/message_relay.py: happens 'staged messages'",
    "broker/runtime/ack_relay.py: happens 'staged acknowledgements'",
    "broker/runtime/delivery_transforms.py: happens 'transforms'",
    "broker/runtime/schedule_ticker.py: happens 'schedules that cannot tick'",
    "broker/workers/event_watch.py: ends _UNPUBLISHED",
    "broker/workers/push/endpoint_news.py: ends _FAILING",
    "broker/workers/push/endpoint_news.py: ends _FAILING_MESSAGE",
    "broker/workers/push/endpoint_news.py: ends _CLAIMS",
    "broker/workers/push/endpoint_news.py: begins _NO_SLOT",
    "broker/workers/push/endpoint_news.py: ends _NO_SLOT",
    "broker/workers/push/endpoint_news.py: begins _PAUSED",
    "broker/workers/push/endpoint_news.py: ends _PAUSED",
    "broker/workers/push/endpoint_news.py: begins _HELD",
    "broker/workers/push/endpoint_news.py: ends _HELD",
}
# These are about a process, the database, a key: no resource.
_OF_NO_RESOURCE = {
    "broker/access/audit/trail.py: begins _TABLE",
    "broker/access/audit/trail.py: happens _TABLE",
    "broker/access/audit/trail.py: ends _TABLE",
    "broker/access/audit/trail.py: begins _FILE",
    "broker/access/audit/trail.py: ends _FILE",
    "broker/access/credentials/issuer_keys.py: begins _TROUBLE",
    "broker/access/credentials/issuer_keys.py: ends _TROUBLE",
    "broker/cli/disk_watch.py: begins *_DISK",
    "broker/cli/disk_watch.py: ends *_DISK",
    "broker/cli/disk_watch.py: happens 'storage limits'",
    "broker/embedded_postgres/cluster.py: happens 'the embedded PostgreSQL'",
    "broker/embedded_postgres/cluster.py: tell 'the embedded PostgreSQL'",
    "broker/runtime/delivery_records.py: happens 'records'",
    "broker/runtime/table_sizes.py: begins *_TABLES",
    "broker/runtime/table_sizes.py: ends *_TABLES",
    "broker/embedded_postgres/cluster.py: begins *_POSTGRESQL",
    "broker/embedded_postgres/cluster.py: ends *_POSTGRESQL",
    "broker/embedded_postgres/cluster.py: begins *_START",
    "broker/port/open_connections.py: happens 'refused connections'",
    "broker/port/http1/web_pages.py: happens kind",
    "broker/runtime/failures.py: begins kind",  # its callers' names are resources, or workers
    "broker/runtime/looks.py: begins *_TROUBLE",
    "broker/runtime/looks.py: ends *_TROUBLE",
    "broker/runtime/running_processes.py: tell 'broker processes'",
    "broker/runtime/wake_ups.py: happens 'foreign notifications'",
    "broker/store/driver/database.py: begins *DATABASE",
    "broker/store/driver/database.py: ends *DATABASE",
    "broker/store/driver/database.py: begins *NODES",
    "broker/store/driver/database.py: ends *NODES",
    "broker/store/driver/database.py: happens 'database troubles'",
    "broker/store/log/in_doubt.py: begins _KIND",
    "broker/store/log/in_doubt.py: ends _KIND",
    "broker/store/log/retention.py: tell 'partitions'",
    "broker/store/log/retention.py: begins _KEPT",
    "broker/workers/event_watch.py: tell 'events'",
    "broker/workers/secret_keeper.py: begins _FILE",
    "broker/workers/secret_keeper.py: ends _FILE",
    "broker/workers/secret_keeper.py: tell 'secrets'",
    "broker/workers/secret_keeper.py: begins _KEYS",
    "broker/workers/secret_keeper.py: ends _KEYS",
    "broker/workers/supervisor.py: ends _KIND",
}


def _modules() -> list[Path]:
    package = repository() / "broker"
    return [path for path in package.rglob("*.py") if path.parent.name != "telemetry"]


def _calls(path: Path, methods: set[str], holder: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_method and node.func.attr in methods and holder in ast.unparse(node.func.value):
            yield node


def _named(path: Path, call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return f"{path.relative_to(repository())}: {call.func.attr} {ast.unparse(call.args[0])}"


def test_every_change_of_state_has_fields_or_the_name_of_a_resource_or_is_known_to_be_of_none() -> None:
    by_name, without = set(_BY_NAME), set(_OF_NO_RESOURCE)
    for path in _modules():
        for call in _calls(path, _CHANGES, "states"):
            if any(keyword.arg == "fields" for keyword in call.keywords):
                continue
            name = _named(path, call)
            assert name in _BY_NAME | _OF_NO_RESOURCE, f"{name}: give it `fields`, or list it here"
            by_name.discard(name)
            without.discard(name)
    assert (by_name, without) == (set(), set())  # nothing is listed that is gone


def test_a_change_of_state_that_is_known_by_a_name_is_given_a_full_name() -> None:
    """An expression that has one: a variable or an attribute called `name`, a topic, a subscription, a project."""
    for path in _modules():
        for call in _calls(path, _CHANGES, "states"):
            if _named(path, call) in _BY_NAME:
                given = ast.unparse(call.args[1])
                assert given.endswith(("name", ".topic", ".subscription", ".project")), (_named(path, call), given)


def test_every_line_of_its_own_that_names_a_topic_or_a_subscription_has_fields() -> None:
    lines = [call for path in _modules() for call in _calls(path, _WRITING, "logger")]
    about = [
        call
        for call in lines
        if any(isinstance(a, ast.Constant) and "subscription %s" in str(a.value) for a in call.args)
        or any(ast.unparse(argument) in ("name", "resource", "subscription.name") for argument in call.args)
    ]
    assert about
    for call in about:
        assert "extra" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)


def test_fields_are_named_by_the_collection_of_a_resource() -> None:
    assert fields_of("projects/p/topics/t", "projects/p/subscriptions/s", message_id="7", status="") == {
        "project": "p",
        "topic": "projects/p/topics/t",
        "subscription": "projects/p/subscriptions/s",
        "message_id": "7",
    }
