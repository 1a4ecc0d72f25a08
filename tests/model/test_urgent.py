"""What is urgent comes as the model says (J4)."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.running_broker import RunningBroker
from tests.model.urgent import Urgency

# The broker's thread draws its jitter meanwhile.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


def _run(database_url: str, examples: int) -> None:
    with RunningBroker(database_url).running() as broker:
        run_state_machine_as_test(
            type("BoundUrgency", (Urgency,), {"broker": broker}),
            settings=settings(
                max_examples=examples,
                stateful_step_count=60,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
                database=None,
            ),
        )


@pytest.mark.slow
@pytest.mark.ci
def test_what_is_urgent_comes_as_the_model_says(database_url: str) -> None:
    _run(database_url, 6)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_urgent_comes_as_the_model_says_for_longer(database_url: str) -> None:
    _run(database_url, 150)
