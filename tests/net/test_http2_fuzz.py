"""Connections of any bytes: the API refuses or serves, it never breaks, and nothing is left behind."""

import asyncio
import struct
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.net.http2.frames import PREFACE, frame
from tests.api.grpc.wire import REQUEST, Service, make_api, packed

BLOCK = b"\x83\x86\x44\x12/test.Service/Echo\x40\x0ccontent-type\x10application/grpc"


class Sink(asyncio.Transport):
    """A socket that is never full, or as full as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


FRAMES = st.builds(
    frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D]) | st.integers(0, 255),
    st.sampled_from([0, 1, 1, 3, 5, 7, 2]),
    st.sampled_from(
        [b"", BLOCK, BLOCK[:5], packed(b"hello"), packed(b"x")[:3], b"\0\0\0\0", b"\0\0\1\0", b"\0" * 8]
    )
    | st.builds(
        struct.Struct(">HI").pack, st.integers(1, 7), st.sampled_from([0, 1, 100, 70_000, 2**31 - 1, 2**31])
    )
    | st.binary(max_size=40),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAMES | st.sampled_from(["pause", "resume", "turn"]), max_size=30), st.integers(1, 50))
def test_no_sequence_of_frames_breaks_the_api(steps: list[bytes | str], cut: int) -> None:
    asyncio.run(_play(steps, cut))


async def _play(steps: list[bytes | str], cut: int) -> None:
    service, connections, tasks = Service(), set[Any](), set[Any]()
    service.proceed.set()
    unforeseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context))
    protocol = make_api(service).connection(connections, tasks)
    sink = Sink()
    protocol.connection_made(sink)
    protocol.data_received(PREFACE + frame(4, 0, 0))
    for step in steps:
        if sink.closed:
            break
        if isinstance(step, bytes):
            for at in range(0, len(step), cut):
                protocol.data_received(step[at : at + cut])
        elif step == "turn":
            await asyncio.sleep(0)
        else:
            protocol.pause_writing() if step == "pause" else protocol.resume_writing()
    protocol.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not connections
    assert not tasks
    assert not unforeseen


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    window=st.integers(0, 100_000),
    grants=st.lists(st.integers(3_000, 40_000), min_size=1, max_size=5),
    max_frame=st.integers(16_384, 100_000),
)
def test_another_implementation_finds_no_fault(
    messages: list[int], window: int, grants: list[int], max_frame: int
) -> None:
    """The h2 package checks every frame that it is sent, and holds the windows that it was promised."""
    asyncio.run(_converse(messages, window, grants, max_frame))


def _send_some(peer: h2.connection.H2Connection, unsent: dict[int, bytes]) -> None:
    """A frame of each body that the windows let through."""
    for stream_id, body in list(unsent.items()):
        size = min(peer.local_flow_control_window(stream_id), peer.max_outbound_frame_size, len(body))
        if size:
            peer.send_data(stream_id, body[:size], end_stream=size == len(body))
        unsent[stream_id] = body[size:]
        if size == len(body):
            del unsent[stream_id]


async def _converse(messages: list[int], window: int, grants: list[int], max_frame: int) -> None:
    connections, tasks = set[Any](), set[Any]()
    protocol = make_api(Service()).connection(connections, tasks)
    sink = Sink()
    protocol.connection_made(sink)
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: max_frame})
    unsent = {2 * number + 1: packed(b"m" * size) for number, size in enumerate(messages)}
    expected, bodies, ended = dict(unsent), dict.fromkeys(unsent, b""), set[int]()
    turn = 0
    for stream_id in unsent:
        peer.send_headers(stream_id, REQUEST)
    while len(ended) < len(messages):
        _send_some(peer, unsent)
        protocol.data_received(peer.data_to_send())
        for _ in range(3):
            await asyncio.sleep(0)
        written, sink.written = sink.written, b""
        for event in peer.receive_data(written):
            if isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] += event.data
            elif isinstance(event, h2.events.StreamEnded):
                ended.add(event.stream_id)
            assert not isinstance(event, h2.events.ConnectionTerminated | h2.events.StreamReset)
        grant = grants[turn % len(grants)]
        turn += 1
        peer.increment_flow_control_window(grant)
        for stream_id in expected.keys() - ended:
            peer.increment_flow_control_window(grant, stream_id)
    assert bodies == expected
    protocol.connection_lost(None)
