"""Subscriber.StreamingPull over gRPC: two directions, one task for each, which end together.

    requests ──acks, deadlines──► confirmations (exactly-once delivery only) ──┐
                                                                               ├──► responses
    messages, as far as the flow control allows ───────────────────────────────┘

The client's half-close ends the stream successfully; any other end has an error status.  Google's clients then open
the stream again.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from broker.api.generated.messages import StreamingPullRequest, StreamingPullResponse
from broker.api.google.requests import resource_name
from broker.api.grpc.call import StreamingCall, allow, in_steps
from broker.api.grpc.requests import decode_request
from broker.api.peer import host_of
from broker.api.steps import is_long
from broker.core.acking.service import AcknowledgeService, Confirmation
from broker.core.pulling.flow_control import FlowControl, check_client_id
from broker.core.pulling.pull_grpc import add_many_received, add_received
from broker.core.pulling.stream_service import MessageStream, StreamingPullService
from broker.model.errors import InvalidArgument
from broker.model.resource_limits import check_stream_ack_deadline

KEEP_ALIVE_VERSION = 1  # of the protocol, from which on clients expect responses to their heartbeats
ONLY_FIRST = ("max_outstanding_messages", "max_outstanding_bytes", "protocol_version")


async def streaming_pull(
    service: StreamingPullService, acknowledge: AcknowledgeService, call: StreamingCall
) -> None:
    requests = call.requests()
    body = await anext(requests, None)
    if body is None:
        raise InvalidArgument("first message must set subscription")
    first = decode_request(StreamingPullRequest, body)
    stream = await _open(service, call, first)
    call.when_gone(stream.close)  # before the client's next stream can open
    sending = asyncio.Lock()
    client = _Client(acknowledge, call, stream, first)
    try:
        await _until_one_ends(_deliver(call, stream, sending), client.listen(first, requests, sending))
    finally:
        stream.close()


async def _open(service: StreamingPullService, call: StreamingCall, first: Any) -> MessageStream:
    if not first.subscription:
        raise InvalidArgument("first message must set subscription")
    name = resource_name(first.subscription, "subscriptions")
    if not first.stream_ack_deadline_seconds:
        raise InvalidArgument("first message must set stream_ack_deadline_seconds")
    check_client_id(first.client_id)
    _check_lists(first)
    await allow(call, name)
    return await service.open(
        name,
        FlowControl(max(first.max_outstanding_messages, 0), max(first.max_outstanding_bytes, 0)),
        ack_deadline=_ack_deadline(first),
        client_id=first.client_id,
        principal=call.caller.member,
        address=host_of(call.peer()),
    )


async def _until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Run both until the first ends; the other is cancelled.  Raises what the first raised."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


# --- to the client -------------------------------------------------------------------------------------------


async def _deliver(call: StreamingCall, stream: MessageStream, sending: asyncio.Lock) -> None:
    while True:
        deliveries = await stream.receive()
        subscription = stream.subscription
        response = _response(stream)
        give_back = partial(stream.give_back, deliveries)
        try:
            if is_long(deliveries):
                await in_steps(call, subscription.name, add_many_received(response, subscription, deliveries))
            else:
                add_received(response, subscription, deliveries)
            await sending.acquire()
        except asyncio.CancelledError:
            give_back()
            raise
        try:
            await call.send(response.SerializeToString(), unless_sent=give_back)
        finally:
            sending.release()


def _response(stream: MessageStream) -> Any:
    response = StreamingPullResponse()
    properties = response.subscription_properties
    properties.exactly_once_delivery_enabled = stream.subscription.enable_exactly_once_delivery
    properties.message_ordering_enabled = stream.subscription.enable_message_ordering
    return response


# --- from the client -----------------------------------------------------------------------------------------


class _Client:
    """The requests of a stream's client."""

    def __init__(
        self, acknowledge: AcknowledgeService, call: StreamingCall, stream: MessageStream, first: Any
    ) -> None:
        self._acknowledge = acknowledge
        self._call = call
        self._stream = stream
        self._expects_answers = first.protocol_version >= KEEP_ALIVE_VERSION

    async def listen(self, first: Any, requests: AsyncIterator[bytes], sending: asyncio.Lock) -> None:
        """Handles requests until the client ends its side, and the messages on their way to it have arrived."""
        await self._apply(first)
        async for body in requests:
            request = decode_request(StreamingPullRequest, body)
            _check_later(request)
            if request.stream_ack_deadline_seconds:
                self._stream.set_ack_deadline(_ack_deadline(request))
            self._stream.touch()
            await self._apply(request)
            if self._expects_answers and not (request.ack_ids or request.modify_deadline_ack_ids):
                await self._call.send(_response(self._stream).SerializeToString())
        await sending.acquire()  # never released: nothing more is sent

    async def _apply(self, request: Any) -> None:
        acknowledge, name = self._acknowledge, self._stream.subscription.name
        if request.ack_ids:
            author = self._stream.acking_author
            confirmation = await acknowledge.acknowledge_on_stream(name, list(request.ack_ids), author)
            await self._confirm("acknowledge_confirmation", confirmation)
        if request.modify_deadline_ack_ids:
            ack_ids, seconds = list(request.modify_deadline_ack_ids), list(request.modify_deadline_seconds)
            confirmation = await acknowledge.modify_ack_deadlines_on_stream(
                name, ack_ids, seconds, self._stream.author
            )
            await self._confirm("modify_ack_deadline_confirmation", confirmation)

    async def _confirm(self, field: str, confirmation: Confirmation | None) -> None:
        if confirmation is None:
            return
        response = _response(self._stream)
        confirmed = getattr(response, field)
        confirmed.ack_ids.extend(confirmation.done)
        confirmed.invalid_ack_ids.extend(confirmation.invalid)
        confirmed.temporary_failed_ack_ids.extend(confirmation.temporary_failed)
        if confirmation.unordered:
            confirmed.unordered_ack_ids.extend(confirmation.unordered)
        await self._call.send(response.SerializeToString())


def _check_later(request: Any) -> None:
    """Raises InvalidArgument for what only the first request may say."""
    if request.subscription:
        raise InvalidArgument("subscription may only be set in first message")
    for field in ONLY_FIRST:
        if getattr(request, field):
            raise InvalidArgument(f"{field} may only be set in first message ({field}={getattr(request, field)})")
    _check_lists(request)


def _check_lists(request: Any) -> None:
    ack_ids, seconds = len(request.modify_deadline_ack_ids), len(request.modify_deadline_seconds)
    if ack_ids != seconds:
        raise InvalidArgument(
            "ack IDs and deadlines must have the same size "
            f"(modify_deadline_ack_ids={ack_ids}, modify_deadline_seconds={seconds})"
        )


def _ack_deadline(request: Any) -> timedelta:
    seconds = request.stream_ack_deadline_seconds
    check_stream_ack_deadline(seconds)
    return timedelta(seconds=seconds)
