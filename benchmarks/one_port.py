"""What it costs REST that gRPC answers on its port: beside a broker that takes every connection for HTTP/1.1."""

from dataclasses import replace
from functools import partial

from benchmarks.bench import Bench, Place, fresh_place, say, take_sample
from benchmarks.report import Row
from benchmarks.servers import Broker, PlainHttpBroker, Server
from benchmarks.side_by_side import Figure, Side, Taken, side_by_side
from benchmarks.throughput import PUBLISH_100, PUBLISH_SINGLE, publish_load
from benchmarks.wire import LoadFailed

_MARK = 0.97
_SINGLE, _HUNDRED = Figure(PUBLISH_SINGLE, mark=_MARK), Figure(PUBLISH_100, mark=_MARK)
_MORE_ROUNDS = 3  # times --rounds: the mark is nearer to 1 than a few rounds can tell
_WORDS = "gRPC on the port"


def _take_single(server: Server, place: Place, seconds: float) -> Taken:
    load = partial(publish_load, server, place, batch=1, connections=64, seconds=seconds)
    return {_SINGLE: take_sample(server, load)}


def _take_hundred(server: Server, place: Place, seconds: float) -> Taken:
    load = partial(publish_load, server, place, batch=100, connections=2, seconds=seconds)
    return {_HUNDRED: take_sample(server, load)}


def rest_one_port(bench: Bench) -> list[Row]:
    """The loads of publish-single and publish-100 on two brokers of their own, by turns."""
    workers = bench.options.workers
    without, carrying = PlainHttpBroker(workers), Broker(workers)
    bench = replace(bench, options=replace(bench.options, rounds=bench.options.rounds * _MORE_ROUNDS))
    try:
        for broker in (without, carrying):
            bench.use(broker)
            bench.warm_up(broker, bench.options.warm_up_seconds)
        return side_by_side(
            bench,
            (_take_single, _take_hundred),
            Side(without, partial(fresh_place, without)),
            Side(carrying, partial(fresh_place, carrying)),
            _WORDS,
        )
    except LoadFailed as error:
        say(f"{_WORDS}: FAILED: {error}")
        return [Row(measure=_WORDS, unit="", error=f"broker: {error}")]
    finally:
        without.stop()
        carrying.stop()
