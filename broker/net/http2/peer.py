"""The settings of a client, from its SETTINGS frames (RFC 9113, section 6.5.2)."""

from broker.net.http2 import frames
from broker.net.http2.frames import Code, ConnectionFault, Setting


class PeerSettings:
    """The settings of a peer as last received.

    `table_was_shrunk`: the next header block must say so (RFC 7541, section 4.2).
    """

    def __init__(self) -> None:
        self.initial_window = frames.DEFAULT_WINDOW
        self.max_frame = frames.DEFAULT_MAX_FRAME
        self.max_header_list: int | None = None
        self.table_was_shrunk = False

    def change(self, payload: bytes) -> int:
        """Take a frame's settings; returns by how much the windows of all streams move.  Raises ConnectionFault."""
        if len(payload) % frames.SETTING.size:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS has 6 bytes for each setting")
        before = self.initial_window
        for key, value in frames.SETTING.iter_unpack(payload):
            self._set(key, value)
        return self.initial_window - before

    def _set(self, key: int, value: int) -> None:
        if key == Setting.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
            self.initial_window = value
        elif key == Setting.MAX_FRAME_SIZE:
            if not frames.DEFAULT_MAX_FRAME <= value <= frames.LARGEST_MAX_FRAME:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")
            self.max_frame = min(value, frames.DEFAULT_MAX_FRAME * 16)
        elif key == Setting.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
        elif key == Setting.HEADER_TABLE_SIZE:
            self.table_was_shrunk = self.table_was_shrunk or value < frames.DEFAULT_HEADER_TABLE
        elif key == Setting.MAX_HEADER_LIST_SIZE:
            self.max_header_list = value
