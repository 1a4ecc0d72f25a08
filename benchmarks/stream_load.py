"""Load by StreamingPull over raw gRPC in cleartext: what Google's client costs is not in it."""

import queue
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import LoadFailed, shown_credential

_METHOD = "/google.pubsub.v1.Subscriber/StreamingPull"
_ACK_DEADLINE_SECONDS = 600


def prepare_stream(spec: Spec) -> Run:
    """Receive by one stream and ack on it, until `count` messages came or `seconds` are over."""
    grpc: Any = import_module("grpc")
    types: Any = import_module("google.pubsub_v1.types")
    request = types.StreamingPullRequest.pb()
    credential = shown_credential()
    metadata = (("authorization", credential),) if credential else ()

    def run() -> Result:
        result = Result(started=time.monotonic())
        result.ended = result.started
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(request(subscription=spec.subscription, stream_ack_deadline_seconds=_ACK_DEADLINE_SECONDS))
        with grpc.insecure_channel(f"{spec.host}:{spec.port}") as channel:
            call = channel.stream_stream(
                _METHOD,
                request_serializer=request.SerializeToString,
                response_deserializer=types.StreamingPullResponse.pb().FromString,
            )(_until_none(requests), timeout=spec.seconds, metadata=metadata)
            try:
                for response in call:
                    ack_ids = [received.ack_id for received in response.received_messages]
                    requests.put(request(ack_ids=ack_ids))
                    result.messages += len(ack_ids)
                    result.ended = time.monotonic()
                    if result.messages >= spec.count:
                        break
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise LoadFailed(f"the stream ended: {error.code()} {error.details()}") from error
            finally:
                requests.put(None)
        return result

    return run


def _until_none(requests: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    while (request := requests.get()) is not None:
        yield request


STREAM_ROLES = {"stream": prepare_stream}
