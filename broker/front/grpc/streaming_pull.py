"""Subscriber.StreamingPull."""

from broker.domain.errors import Unimplemented
from broker.front.grpc.call import StreamingCall


async def streaming_pull(call: StreamingCall) -> None:
    raise Unimplemented("This method is not implemented: StreamingPull is not served yet; Pull is.")
