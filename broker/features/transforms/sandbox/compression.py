"""Compresses and decompresses data in zlib's format, up to the size that a message may have."""

import zlib

from broker.features.transforms.sandbox.javascript import MAX_BYTES
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.model.transforms import Compression


def apply(compression: Compression, message: Message) -> Outcome:
    if compression.mode == "COMPRESS":
        return Outcome(Ending.KEPT, zlib.compress(message.data), message.attributes)
    reading = zlib.decompressobj()
    try:
        data = reading.decompress(message.data, MAX_BYTES + 1)
    except zlib.error as error:
        return Outcome(Ending.FAILED, reason=f"the data is not compressed by zlib ({error})")
    if len(data) > MAX_BYTES:
        return Outcome(Ending.FAILED, reason=f"decompressed, the data is over {MAX_BYTES} bytes")
    if not reading.eof or reading.unused_data:
        what = "goes on behind its end" if reading.eof else "ends too soon"
        return Outcome(Ending.FAILED, reason=f"the data is compressed by zlib, but {what}")
    return Outcome(Ending.KEPT, data, message.attributes)
