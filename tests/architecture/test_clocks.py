"""Nothing that the broker decides depends on its machine's wall clock: time is the database's."""

import re
from pathlib import Path

_WALL_CLOCK = re.compile(r"time\.time\(|time_ns\(|datetime\.now\(|utcnow\(|CLOCK_REALTIME|date\.today\(")
_EXCEPTIONS = {
    # Of an answer without a Date header, whose Retry-After names a date: the endpoint's clock is not known.
    "core/pushing/client/http_client.py",
    # The log's own times are the machine's; since when something lasts is told in the same.
    "observability/state_changes.py",
    # When a certificate expires: clients compare it with a clock of theirs, and only a line of the log hangs on it.
    "cli/server/tls_files.py",
    # What a command signs with a key file, on whatever machine it is typed, as Google's libraries do.
    "client/credentials.py",
    # How far this machine's is from the database's is what `broker doctor` tells.
    "features/inspect/fleet/database_checks.py",
    # What "an hour ago" means to whoever types a command.
    "client/clock.py",
    # When a span began: those of other programs in its trace have their machines' times.
    "observability/tracing.py",
}


def test_no_code_reads_the_wall_clock() -> None:
    package = Path(__file__).parents[2] / "broker"
    readers = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if _WALL_CLOCK.search(path.read_text())
    }
    assert readers == _EXCEPTIONS
