"""What goes on is told once, by observability/state_changes.py; a line of its own has only what is rare."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.broker import repository

_WRITING = {"info", "warning", "error", "exception", "critical", "log"}
# Each is bounded by what it is about: a deletion, a look at the clock, a stop, a worker's life, a wait, a
# call that changes a resource.
_LISTED = {
    "broker/cli/server/tls_files.py: new connections get the new certificate, valid until %s",
    "broker/cli/server/tls_files.py: new files of TLS are not used, and the old ones stay in use: %s",
    "broker/cli/server/tls_files.py: the TLS certificate expires at %s, in %s: less than a third of its %s is left",
    "broker/cli/server/tls_files.py: the TLS certificate has expired at %s: clients refuse it",
    "broker/cli/server/applier.py: by the declarations: %s",
    "broker/cli/server/worker.py: the new certificate is not used, and the old one stays in use: %s",
    "broker/cli/server/serve.py: anyone who reaches %s may do anything: %s",
    "broker/cli/server/serve.py: secrets are in clear text in the database: %s",
    "broker/cli/server/serve.py: %s is open to other machines without TLS: %s",
    "broker/cli/server/children.py: worker process %d %s; starting it again%s",
    "broker/cli/server/children.py: worker process %d serves again",
    "broker/cli/server/service_manager.py: the service manager at %s could not be told: %s",
    "broker/cli/server/schema.py: logger.info(served.remark)",
    "broker/cli/server/worker.py: no traces are sent, for %s: install the broker with the extra otel",
    "broker/net/uvicorn_server.py: %d calls had no answer when the broker stopped",
    "broker/cli/server/worker.py: the last spans are lost: no collector took them in %d s",
    "broker/api/logging/changes.py: %s at %s called %s on %s%s",
    "broker/core/process/database_clock.py: "
    "the database's clock is %+.1f s from where it was: it was set, or a machine stood still",
    "broker/core/context/wake_ups.py: "
    "The database has no LISTEN (%s): what other processes publish is seen within %g s,"
    " what they give back within %g s, and changes of topics and subscriptions within %g s.",
    "broker/db/schema/migration_waits.py: The migration waits for a lock that is held by %s, and tries again.",
    "broker/core/expiration/subscription_expirer.py: "
    "subscription %s was deleted by its expiration policy: nobody used it for %s",
}


def _lines(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _WRITING
            and "logger" in ast.unparse(node.func.value)
        ):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield texts[0] if texts else ast.unparse(node)


def test_every_line_is_of_a_change_of_state_or_at_debug_or_known_to_be_rare() -> None:
    package = repository() / "broker"
    modules = [path for path in package.rglob("*.py") if path.parent.name != "observability"]
    found = {f"{path.relative_to(repository())}: {line}" for path in modules for line in _lines(path)}
    assert found == _LISTED
