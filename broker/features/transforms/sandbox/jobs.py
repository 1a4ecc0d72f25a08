"""The jobs of a sandbox, and its answers."""

from enum import IntEnum

import msgspec

from broker.model.transforms import Transforms

MAX_PROGRAMS = 40  # that a sandbox keeps; its parent counts them


class Message(msgspec.Struct, array_like=True, gc=False):
    """`attributes` is a JSON object.  `publish_time` and `message_id` are "" before it is stored; `millis` is the
    time that a function is told.
    """

    data: bytes
    attributes: str
    message_id: str = ""
    publish_time: str = ""
    ordering_key: str = ""
    millis: int = 0


class Ending(IntEnum):
    KEPT = 0
    DROPPED = 1
    FAILED = 2


class Outcome(msgspec.Struct, array_like=True, gc=False):
    """`reason`: why it failed, and where."""

    ending: Ending
    data: bytes = b""
    attributes: str = "{}"
    reason: str = ""


class Run(msgspec.Struct, tag=True):
    """Transform these messages.  `program` is a name that no other transforms have had; these are None if the
    sandbox knows them by it.  It answers for as many, from the first on, as it gets done in its time.
    """

    program: str
    transforms: Transforms | None
    messages: list[Message]


class Check(msgspec.Struct, tag=True):
    """Whether code can be used: the answer is one outcome that failed, or none.  `where` goes before the reason."""

    transforms: Transforms
    where: str


class Forget(msgspec.Struct, tag=True):
    """The programs that are not requested any more."""

    programs: list[str]


Job = Run | Check | Forget
JOBS = msgspec.msgpack.Decoder(Job)
OUTCOMES = msgspec.msgpack.Decoder(list[Outcome])
encode = msgspec.msgpack.Encoder().encode
