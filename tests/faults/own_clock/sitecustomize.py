"""In the processes of a broker: a wall clock that is off by as much as a file says (see tests/faults/clocks.py)."""

import ctypes
import datetime as datetimes
import gc
import mmap
import os
import struct
import time

_OFFSET = struct.Struct("d")


def _shift(path: str) -> None:
    with open(path, "rb") as file:
        offsets = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    true_time, true_time_ns, true_datetime = time.time, time.time_ns, datetimes.datetime
    from_timestamp = true_datetime.fromtimestamp

    def offset() -> float:
        [seconds] = _OFFSET.unpack_from(offsets)
        return float(seconds)

    def own_time() -> float:
        return true_time() + offset()

    def own_time_ns() -> int:
        return true_time_ns() + int(offset() * 1e9)

    def own_now(cls: type[datetimes.datetime], tz: datetimes.tzinfo | None = None) -> datetimes.datetime:
        return from_timestamp(own_time(), tz)

    time.time, time.time_ns = own_time, own_time_ns
    # The class itself is kept, for others hold on to it: its dictionary gets another method.
    [attributes] = [one for one in gc.get_referents(true_datetime.__dict__) if isinstance(one, dict)]
    attributes["now"] = classmethod(own_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(true_datetime))


if _path := os.environ.get("SUITE_CLOCK"):
    _shift(_path)
