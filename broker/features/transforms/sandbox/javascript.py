"""Runs a JavaScript function in isolation: without time, randomness or access to anything outside (QuickJS).

Its time, memory and depth of calls are limited here.  If these limits do not end it, the process ends
(features/transforms/sandbox/process.py).
"""

import re
from pathlib import Path
from zlib import crc32

import msgspec
import quickjs

from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.model.transforms import JavascriptUdf

MAX_SECONDS = 0.5  # of the processor, for a message: Google's
MAX_MEMORY = 128_000_000  # of a world, for a message: 10 MB of JSON that are parsed and written again fit
MAX_IDLE_MEMORY = 8_000_000  # of a world between messages; beyond it is made anew
MAX_STACK = 256 * 1024
MAX_REASON = 300  # characters
MAX_BYTES = 10_000_000  # of what comes out of a message: what a publish may have

_PRELUDE = (Path(__file__).parent / "prelude.js").read_text("utf-8")
_WHERE = re.compile(r"\(?<input>:(\d+):(\d+)\)?")
_encode = msgspec.json.Encoder().encode
_made = msgspec.json.Decoder(tuple[str, dict[str, str] | None]).decode
_failed = msgspec.json.Decoder(tuple[int, str, str | None]).decode


class Refused(Exception):
    """Why code, or a message, is."""


class Function:
    """Made anew if its world has grown."""

    def __init__(self, udf: JavascriptUdf) -> None:
        """Raises Refused, with the place in the code."""
        self._udf = udf
        self._make()

    def _make(self) -> None:
        udf = self._udf
        self._world = world = quickjs.Context()
        world.set_memory_limit(MAX_MEMORY)
        world.set_max_stack_size(MAX_STACK)
        world.set_time_limit(MAX_SECONDS)
        self._transform = world.eval(_PRELUDE)
        try:
            world.eval(udf.code)
        except quickjs.JSException as error:
            raise Refused(_message_of(str(error))) from error
        try:
            self._function = world.eval(udf.function_name)
            is_function = world.eval(f"typeof {udf.function_name} === 'function'")
        except quickjs.JSException:
            is_function = False
        if not is_function:
            raise Refused(f"there is no function {udf.function_name} in it")

    def apply(self, message: Message) -> Outcome:
        try:
            text = _given(message)
        except UnicodeDecodeError as error:
            return Outcome(Ending.FAILED, reason=f"the data is not UTF-8 (at byte {error.start})")
        start = crc32(f"{message.message_id} {message.millis}".encode()) - 2**31
        try:
            made = self._transform(self._function, text, float(message.millis), start)
        except quickjs.JSException as error:
            self._make()
            return Outcome(Ending.FAILED, reason=_message_of(str(error)))
        return Outcome(Ending.DROPPED) if made is None else _outcome(message, made)

    def rest(self) -> None:
        """Frees memory while no message is being transformed."""
        if self._world.memory()["malloc_size"] > MAX_IDLE_MEMORY:
            self._make()


def _given(message: Message) -> str:
    metadata = {
        name: value
        for name, value in (
            ("message_id", message.message_id),
            ("publish_time", message.publish_time),
            ("ordering_key", message.ordering_key),
        )
        if value
    }
    data = _encode(str(message.data, "utf-8")).decode()
    return f'[{{"data":{data},"attributes":{message.attributes}}},{_encode(metadata).decode()}]'


def _outcome(message: Message, made: str) -> Outcome:
    if len(made) > 2 * MAX_BYTES:
        return Outcome(Ending.FAILED, reason=f"what it returns is over {MAX_BYTES} bytes")
    try:
        data, attributes = _made(made)
    except (msgspec.DecodeError, UnicodeError):
        return Outcome(Ending.FAILED, reason=_why_not(made))
    outcome = Outcome(
        Ending.KEPT, data.encode(), message.attributes if attributes is None else _encode(attributes).decode()
    )
    if len(outcome.data) + len(outcome.attributes) > MAX_BYTES:
        return Outcome(Ending.FAILED, reason=f"what it returns is over {MAX_BYTES} bytes")
    return outcome


def _why_not(made: str) -> str:
    try:
        _, text, stack = _failed(made)
    except (msgspec.DecodeError, UnicodeError):
        return "it must return a message whose data is a string and whose attributes are strings by name"
    return _message_of(f"{text}\n{stack}")


def _message_of(error: str) -> str:
    """The first line of an error, with the place in the code that it names."""
    said = error.partition("\n")[0].strip() or "an error without a text"
    if said == "InternalError: interrupted":
        said = f"it took more than {MAX_SECONDS:g} s"
    elif said == "null":  # what QuickJS throws where there is no memory for an error
        said = "it threw null, or took too much memory"
    found = _WHERE.search(error)
    where = f" (line {found[1]}, column {found[2]})" if found else ""
    return f"{said[:MAX_REASON]}{where}"
