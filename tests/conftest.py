import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Else gRPC's threads look at every fork of a test's process, and now and then break a child before it is another
# program: a database that a test starts, for instance.  None of the children goes on to use gRPC.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# Brokers that tests start embed their databases wherever there is room, which may be less than the default limit.
os.environ["BROKER_DISK_FREE_MIN"] = "64MB"

# A shell that runs the suite in its background has it ignore Ctrl-C; so would the programs that tests start and end
# by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.fixtures.citus",  # which the next one uses
    "tests.fixtures.database",
    "tests.fixtures.data_directory",
    "tests.fixtures.broker",
    "tests.fixtures.in_process",
    "tests.fixtures.log",
    "tests.fixtures.application",
    "tests.fixtures.outbox",
    "tests.fixtures.push_sink",
    "tests.fixtures.push_log",
    "tests.fixtures.pusher",
    "tests.fixtures.pushes",
    "tests.fixtures.process",
]

# The same examples in every run, so that a failure is the change's; `make test-all` looks at others each time.  How
# long an example takes says something about the machine only.
_CALM: dict[str, object] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **_CALM)  # type: ignore[arg-type]
settings.register_profile("explore", **_CALM)  # type: ignore[arg-type]
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests stay until the end: garbage is not looked for among them, each time again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
