"""The model of what loads cost: it finds the parameters that figures were made of, and says how many nodes (L4)."""

import itertools

import pytest

from benchmarks.bench import Bench, Options
from benchmarks.scaling import scaling
from benchmarks.scaling_model import Cost, Load, Model, Point, fit, need
from benchmarks.servers import Broker
from benchmarks.throughput import warm_up

_PLACES = list(itertools.product((75, 1_000, 8_000), (1, 10, 100)))


def test_the_fit_finds_what_the_figures_were_made_of() -> None:
    made_of = Cost(120.0, 3.0, 6.5)
    found = fit([Point(size, batch, made_of.of(size, batch)) for size, batch in _PLACES])
    assert (found.request, found.message, found.kilobyte) == pytest.approx((120.0, 3.0, 6.5))
    assert found.error(Point(300, 30, 2 * made_of.of(300, 30))) == pytest.approx(0.5)


def test_no_part_of_a_cost_is_below_nothing() -> None:
    found = fit([Point(size, batch, 100 / batch - 0.5 + size / 1_000) for size, batch in _PLACES if size > 75])
    assert found.message == 0
    assert found.request > 0


def test_a_load_needs_processors_for_what_is_published_and_for_each_subscription_that_gets_it() -> None:
    publish, deliver, nothing = Cost(100, 5, 0), Cost(1_000, 1, 0), Cost(0, 0, 0)
    model = Model(
        publish_broker=publish,
        publish_postgres=nothing,
        publish_wal=Cost(0, 0, 1_000),
        deliver_broker=deliver,
        deliver_postgres=Cost(0, 10, 0),
        deliver_wal=nothing,
    )
    load = Load(name="", rate=10_000, size=500, batch=10, fan_out=3, response=100)
    found = need(model, load)
    assert found.broker == pytest.approx((10_000 * 15 + 30_000 * 11) / 1e6)
    assert found.postgres == pytest.approx(0.3)
    assert found.wal == pytest.approx(5.0)
    assert (found.processes(), found.processors()) == (1, 1)
    assert found.processes(busy=0.1) == 5


@pytest.mark.slow
def test_the_measure_gives_points_parameters_and_needs() -> None:
    bench = Bench(Options(rounds=1, seconds=0.3, warm_up_seconds=0.1), Broker(), None, warm_up)
    try:
        rows = scaling(bench)
    finally:
        bench.close()
    assert not [row.error for row in rows if row.error]
    assert sum("error on held-out" in row.measure for row in rows) == 6
    assert all(row.ours for row in rows if row.unit in ("messages/s", "broker processes"))
