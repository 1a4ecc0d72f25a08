"""The real broker, over HTTP, does what the model says (A3-A7, A9, A10, B2, B6)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import PubSub
from tests.model.running_broker import RunningBroker

# It is the broker that does, in a thread of its own, while the test makes up what to do next.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")


@contextmanager
def _machine(database_url: str, *, shards_per_topic: int = 1) -> Iterator[type[PubSub]]:
    with RunningBroker(database_url, shards_per_topic=shards_per_topic).running() as broker:
        yield type("BoundPubSub", (PubSub,), {"broker": broker})


def _settings(examples: int, steps: int, *, derandomize: bool = True) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=derandomize,
        database=None,
    )


def test_the_broker_does_what_the_model_says(database_url: str) -> None:
    with _machine(database_url) as machine:
        run_state_machine_as_test(machine, settings=_settings(12, 60))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shards_per_topic", [1, 3])
def test_the_broker_does_what_the_model_says_for_longer(database_url: str, shards_per_topic: int) -> None:
    """Something else each time; `--hypothesis-seed=N` repeats it."""
    with _machine(database_url, shards_per_topic=shards_per_topic) as machine:
        run_state_machine_as_test(machine, settings=_settings(100, 100, derandomize=False))
