"""What it costs to ask who calls: a broker with authentication beside one without, both shown the same credential.

The credential is a token that the key of a service account has signed, the longest of the usual ones.  After the
first call the broker knows it.
"""

import json
import time
from functools import partial
from pathlib import Path

import jwt

from benchmarks.bench import Bench, Place, Sample, fresh_place, say, take_sample
from benchmarks.generators import run_loads, throughput
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.servers import Broker, GuardedBroker, Server
from benchmarks.side_by_side import Figure, Side, Take, Taken, side_by_side, take_lone_publish
from benchmarks.throughput import fill, publish_load
from benchmarks.wire import LoadFailed, showing

_WORDS = "authentication"
_SINGLE, _STREAMED = Figure("publish, single messages, 64 connections"), Figure("streaming pull and ack, 1 stream")
_STREAM_PER_SECOND = 20_000  # messages to stream per second of load; a faster server ends early
_AUDIENCE = "https://pubsub.googleapis.com/"
_TOKEN_SECONDS = 3_600


def access(bench: Bench) -> list[Row]:
    """Single publishes, lone ones, and a stream, by turns; ratio: with authentication : without."""
    without, guarded = Broker(bench.options.workers), GuardedBroker(bench.options.workers)
    try:
        bench.use(guarded)
        bench.use(without)
        with showing(f"Bearer {token_of(guarded.admin_key)}"):
            for server in (without, guarded):
                bench.warm_up(server, min(bench.options.warm_up_seconds, bench.options.seconds))
            takes: list[Take] = [_take_single, take_lone_publish, _take_stream]
            sides = Side(without, partial(fresh_place, without)), Side(guarded, partial(fresh_place, guarded))
            return side_by_side(bench, takes, *sides, _WORDS)
    except LoadFailed as error:
        say(f"{_WORDS}: FAILED: {error}")
        return [Row(measure=_WORDS, unit="", error=f"broker: {error}")]
    finally:
        guarded.stop()
        without.stop()


def _take_single(server: Server, place: Place, seconds: float) -> Taken:
    load = partial(publish_load, server, place, batch=1, connections=64, seconds=seconds)
    return {_SINGLE: take_sample(server, load)}


def _take_stream(server: Server, place: Place, seconds: float) -> Taken:
    count = int(seconds * _STREAM_PER_SECOND)
    fill(server, place, count)
    spec = Spec(
        role="stream",
        host=server.host,
        port=server.port,
        subscription=place.subscriptions[0],
        seconds=10 * seconds,
        count=count,
    )
    sample: Sample = take_sample(server, lambda: throughput(run_loads([spec])))
    return {_STREAMED: sample}


def token_of(key_file: Path) -> str:
    """As Google's libraries make it."""
    key = json.loads(key_file.read_text())
    now = int(time.time())
    claims = {"iss": key["client_email"], "sub": key["client_email"], "aud": _AUDIENCE, "iat": now}
    claims["exp"] = now + _TOKEN_SECONDS
    return jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
