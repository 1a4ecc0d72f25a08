"""Whatever the log says of a topic or a subscription, it says in a field too (docs/operations.md#fields)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from broker.observability.log import fields_of
from tests.fixtures.broker import repository

_CHANGES = {"begins", "happens", "ends", "report"}
_WRITING = {"info", "warning", "error", "exception", "critical", "log"}

# Their `name` is the full name of a resource: StateChanges makes the fields of it.
_BY_NAME = {
    "broker/features/dead_letters/dead_letter_incidents.py: ends _DENIED",
    "broker/features/dead_letters/dead_letter_incidents.py: ends _MISSING",
    "broker/features/dead_letters/dead_letter_incidents.py: ends _UNREAD",
    "broker/features/outbox/outbox_relay.py: happens 'staged messages that wait'",
    "broker/features/outbox/message_publisher.py: happens 'staged messages'",
    "broker/features/outbox/acknowledger.py: happens 'staged acknowledgements'",
    "broker/features/transforms/delivery_transforms.py: happens 'transforms'",
    "broker/features/schedules/ticker.py: happens 'schedules that cannot tick'",
    "broker/features/events/worker.py: ends _UNPUBLISHED",
    "broker/features/lag_board/sampler.py: begins _UNREADABLE",
    "broker/features/lag_board/sampler.py: ends _UNREADABLE",
    "broker/core/pushing/endpoint_incidents.py: ends _FAILING",
    "broker/core/pushing/endpoint_incidents.py: ends _FAILING_MESSAGE",
    "broker/core/pushing/endpoint_incidents.py: ends _CLAIMS",
    "broker/core/pushing/endpoint_incidents.py: begins _NO_SLOT",
    "broker/core/pushing/endpoint_incidents.py: ends _NO_SLOT",
    "broker/core/pushing/endpoint_incidents.py: begins _PAUSED",
    "broker/core/pushing/endpoint_incidents.py: ends _PAUSED",
    "broker/core/pushing/endpoint_incidents.py: begins _HELD",
    "broker/core/pushing/endpoint_incidents.py: ends _HELD",
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
    "broker/cli/server/disk_watch.py: begins *_DISK",
    "broker/cli/server/disk_watch.py: ends *_DISK",
    "broker/cli/server/disk_watch.py: happens 'storage limits'",
    "broker/db/embedded/cluster.py: happens 'the embedded PostgreSQL'",
    "broker/db/embedded/cluster.py: report 'the embedded PostgreSQL'",
    "broker/core/acking/delivery_recorder.py: happens 'records'",
    "broker/core/retention/table_sizes.py: begins *_TABLES",
    "broker/core/retention/table_sizes.py: ends *_TABLES",
    "broker/db/embedded/cluster.py: begins *_POSTGRESQL",
    "broker/db/embedded/cluster.py: ends *_POSTGRESQL",
    "broker/db/embedded/cluster.py: begins *_START",
    "broker/net/limits/open_connections.py: happens 'refused connections'",
    "broker/net/http1/web_pages.py: happens kind",
    "broker/core/process/failures.py: begins kind",  # its callers' names are resources, or workers
    "broker/db/driver/replica_reads.py: begins *_TROUBLE",
    "broker/db/driver/replica_reads.py: ends *_TROUBLE",
    "broker/core/context/running_processes.py: report 'broker processes'",
    "broker/core/context/wake_ups.py: happens 'foreign notifications'",
    "broker/db/driver/database.py: begins *DATABASE",
    "broker/db/driver/database.py: ends *DATABASE",
    "broker/db/driver/database.py: begins *NODES",
    "broker/db/driver/database.py: ends *NODES",
    "broker/db/driver/database.py: happens 'database troubles'",
    "broker/db/driver/in_doubt.py: begins _KIND",
    "broker/db/driver/in_doubt.py: ends _KIND",
    "broker/core/retention/retention.py: report 'partitions'",
    "broker/core/retention/retention.py: begins _KEPT",
    "broker/features/events/worker.py: report 'events'",
    "broker/features/secrets/worker.py: begins _FILE",
    "broker/features/secrets/worker.py: ends _FILE",
    "broker/features/secrets/worker.py: report 'secrets'",
    "broker/features/secrets/worker.py: begins _KEYS",
    "broker/features/secrets/worker.py: ends _KEYS",
    "broker/core/process/supervisor.py: ends _KIND",
}


def _modules() -> list[Path]:
    package = repository() / "broker"
    return [path for path in package.rglob("*.py") if path.parent.name != "observability"]


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
