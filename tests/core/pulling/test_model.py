"""Whatever publishers, streams and pullers do, nobody is given what the reference says that they may not have."""

import asyncio

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.core.pulling.machine import StreamingPull


def _settings(examples: int, steps: int, *, derandomize: bool) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=derandomize,
        database=None,
        phases=[Phase.generate],  # two runs of the same steps are not the same: shrinking would mislead
    )


def _run(url: str, *, ordered: bool, examples: int, steps: int, derandomize: bool) -> None:
    with asyncio.Runner() as runner:
        machine = type("Bound", (StreamingPull,), {"runner": runner, "url": url, "ordered": ordered})
        run_state_machine_as_test(machine, settings=_settings(examples, steps, derandomize=derandomize))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_streams_and_pullers_get_what_they_may(broker_url: str, ordered: bool) -> None:
    _run(broker_url, ordered=ordered, examples=12, steps=25, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_streams_and_pullers_get_what_they_may_for_longer(broker_url: str, ordered: bool) -> None:
    """Something else each time; `--hypothesis-seed=N` repeats it."""
    _run(broker_url, ordered=ordered, examples=100, steps=60, derandomize=False)
