"""Very many topics with ten subscriptions each, a little traffic on every one; ours alone."""

from dataclasses import replace

from benchmarks.bench import Bench, Sample, say, take_sample
from benchmarks.generators import Throughput, run_loads
from benchmarks.latency import percentile
from benchmarks.load_spec import Result, Spec
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.spread_load import SINGLES
from benchmarks.wire import LoadFailed

_FAN = 10  # subscriptions of a topic
_RATE = 1_000  # messages a second, in all
_BATCH = 10
_SWEEPS = 3  # while messages are published, each subscription is polled so often; then once more
_WAITED_ON = 100  # of so many topics the subscriptions of one have waiting pulls
_MARK = 0.95  # delivered : published x subscriptions
_PROJECT = "projects/spread"
_MEGABYTE = 1e6


def scale_topics(bench: Bench) -> list[Row]:
    """A broker of its own with `--topics` topics of 10 subscriptions.

    1,000 messages a second, half of them single, half in batches of 10, go to the topics by turns.  One topic in a
    hundred has a waiting pull on each subscription; the others are polled by turns.  The rate that came out is
    taken from the second poll of each subscription to the end of publishing; then all must have been delivered.
    """
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        return _run(bench, broker)
    except LoadFailed as error:
        say(f"many topics: FAILED: {error}")
        return [Row(measure="many topics", unit="", error=f"broker: {error}")]
    finally:
        broker.stop()


def _run(bench: Bench, broker: Broker) -> list[Row]:
    before = broker.memory_bytes()
    publish, poll, wait = specs = _specs(bench, broker)
    run_loads([replace(publish, role="spread_create", connections=32, seconds=0)])
    say(f"{publish.topics:,} topics with {_FAN} subscriptions: created")
    taken: list[Result] = []

    def load() -> Throughput:
        taken.extend(run_loads(specs))
        return Throughput(sum(result.steady for result in taken[1:]) / (wait.until - wait.after), taken[0].messages)

    sample = take_sample(broker, load)
    after = broker.memory_bytes()
    rows = [_delivered(publish, poll, taken, sample)]
    rows += _latencies(f"publish to {publish.topics:,} topics → answer", taken[0].publish_seconds)
    rows += _latencies("publish → acked by a waiting pull", taken[2].pull_seconds)
    row = Row(measure=f"memory, {publish.topics:,} topics with {_FAN} subscriptions", unit="MB")
    row.ours = after["python"] / _MEGABYTE
    row.note = (
        f"at start {number(before['python'] / _MEGABYTE)}; PostgreSQL {number(after['postgres'] / _MEGABYTE)} MB"
    )
    return [*rows, row]


def _specs(bench: Bench, broker: Broker) -> tuple[Spec, Spec, Spec]:
    """Publisher, poller, waiter.  The poller goes round once more after the last publish."""
    topics, seconds = bench.options.topics, bench.options.spread_seconds
    waited_on, sweep = max(1, topics // _WAITED_ON), seconds / _SWEEPS
    common = Spec(
        role="",
        host=broker.host,
        port=broker.port,
        topic=f"{_PROJECT}/topics/spread",
        subscription=f"{_PROJECT}/subscriptions/spread",
        topics=topics,
        fan=_FAN,
        first=waited_on,
        batch=_BATCH,
        size=75,
        after=sweep,
        until=seconds,
    )
    requests = _RATE * (SINGLES + 1) / (SINGLES + _BATCH)
    polls = (topics - waited_on) * _FAN / sweep
    return (
        replace(common, role="spread_publish", seconds=seconds, rate=requests, connections=16),
        replace(common, role="spread_poll", seconds=seconds + 1.1 * sweep, rate=polls, connections=32),
        replace(common, role="spread_wait", seconds=seconds + 1.1 * sweep),
    )


def _delivered(publish: Spec, poll: Spec, taken: list[Result], sample: Sample) -> Row:
    published, delivered = taken[0].messages, sum(result.messages for result in taken[1:])
    row = Row(
        measure=f"delivered from {publish.topics:,} topics to {_FAN} subscriptions each",
        unit="messages/s",
        mark=_MARK,
    )
    row.ours, row.cpu, row.others = sample.value, dict(sample.cpu), sample.others
    row.ratio = sample.value / (_FAN * published / (taken[0].ended - taken[0].started))
    late = percentile(taken[1].pull_seconds, 99)
    row.note = (
        f"{published:,} published at {published / (taken[0].ended - taken[0].started):,.0f} a second, "
        f"{delivered:,} delivered; ratio: to what was published, times {_FAN}; processor time for a published "
        f"message, that is for {_FAN} deliveries; {poll.rate:,.0f} polls a second, p99 {number(late)} ms"
    )
    if delivered < published * _FAN:
        row.error = f"broker: {published * _FAN - delivered:,} messages did not come"
    return row


def _latencies(name: str, seconds: list[float]) -> list[Row]:
    rows = [
        Row(measure=f"{name}, p{percent}", unit="ms", ours=percentile(seconds, percent)) for percent in (50, 99)
    ]
    rows[0].note = f"{len(seconds):,} samples"
    return rows
