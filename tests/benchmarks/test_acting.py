"""What is measured of acting on messages is measured with a real broker, at small sizes (G2)."""

from collections.abc import Callable

import pytest

from benchmarks.bench import Bench, Options
from benchmarks.priorities import priorities
from benchmarks.purges import purges
from benchmarks.redrive import redrive
from benchmarks.report import Row
from benchmarks.resets import resets
from benchmarks.servers import Broker
from benchmarks.throughput import warm_up
from benchmarks.transfers import transfers

pytestmark = pytest.mark.slow

_SMALL = Options(rounds=1, seconds=0.3, backlog=(4_000,), claims_backlog=20_000, warm_up_seconds=0.1)


@pytest.mark.parametrize(
    ("measure", "figures", "ratios"),
    [(purges, 2, 2), (resets, 2, 1), (transfers, 6, 4), (redrive, 3, 2), (priorities, 5, 5)],
)
def test_a_measure_gives_figures_and_ratios(
    measure: Callable[[Bench], list[Row]], figures: int, ratios: int
) -> None:
    bench = Bench(_SMALL, Broker(), None, warm_up)
    try:
        rows = measure(bench)
    finally:
        bench.close()
    assert [row.error for row in rows] == [""] * figures
    assert all(row.ours is not None and row.ours > 0 for row in rows)
    assert sum(row.ratio is not None for row in rows) == ratios
