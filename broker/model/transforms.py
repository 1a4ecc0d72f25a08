"""Message transforms, applied to each message before a topic stores it, or before a subscription delivers it.

Google's transforms are a sequence of JavaScript functions and compressions.  Transforms of fields are an extension
(field_transform.py).  A function that returns null drops the message; a function that fails makes the publish fail,
or nacks the message.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from broker.model.errors import InvalidArgument
from broker.model.field_transform import Fields, plan_of

# Google's limits: https://cloud.google.com/pubsub/docs/smts/udfs-overview
MAX_TRANSFORMS = 5  # of a topic or subscription
MAX_CODE_BYTES = 20_480
MAX_NAME = 256  # characters, ours
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")

FIELD = "messageTransforms"


class JavascriptUdf(msgspec.Struct, frozen=True, rename="camel"):
    """`code` has a function of this name, which gets a message and its metadata."""

    function_name: str
    code: str


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """The compression of a message's data, in zlib's format (RFC 1950)."""

    mode: Literal["COMPRESS", "DECOMPRESS"] = msgspec.field(name="compressionMode")
    algorithm: Literal["ZLIB"] = msgspec.field(name="compressionAlgorithm", default="ZLIB")


Action = JavascriptUdf | Compression | Fields


class Transform(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message transform with one action, in the API's JSON, in which it is stored.

    `enabled` is Google's old field, which is returned as it was given and has no effect.
    """

    javascript_udf: JavascriptUdf | None = None
    compression: Compression | None = None
    fields: Fields | None = None
    disabled: bool = False
    enabled: bool = False

    @property
    def action(self) -> Action:
        """Returns the action that is given."""
        return next(each for each in (self.javascript_udf, self.compression, self.fields) if each is not None)


Transforms = tuple[Transform, ...]


def check_transforms(transforms: Transforms, where: str = FIELD) -> None:
    """Raises InvalidArgument for what breaks a limit; whether code compiles only the sandbox knows."""
    if len(transforms) > MAX_TRANSFORMS:
        raise InvalidArgument(f"{where} has {len(transforms)} transforms, the maximum is {MAX_TRANSFORMS}.")
    names: set[str] = set()
    for index, transform in enumerate(transforms):
        if isinstance(transform.action, JavascriptUdf):
            _check_udf(transform.action, f"{where}[{index}].javascriptUdf")
            if transform.action.function_name in names:
                raise InvalidArgument(
                    f"{where}[{index}].javascriptUdf.functionName={transform.action.function_name} is the name of "
                    "an earlier one; each needs a name of its own."
                )
            names.add(transform.action.function_name)
        elif isinstance(transform.action, Fields):
            plan_of(transform.action, f"{where}[{index}].fields")


def _check_udf(udf: JavascriptUdf, where: str) -> None:
    if len(udf.function_name) > MAX_NAME or _IDENTIFIER.fullmatch(udf.function_name) is None:
        raise InvalidArgument(
            f"{where}.functionName must be the name of a JavaScript function, not {udf.function_name[:64]!r}."
        )
    size = len(udf.code.encode())
    if size > MAX_CODE_BYTES:
        raise InvalidArgument(f"{where}.code has {size} bytes, the maximum is {MAX_CODE_BYTES}.")
    if not udf.code.strip():
        raise InvalidArgument(f"{where}.code is empty: it must have a function {udf.function_name}.")
    if "\0" in udf.code:
        raise InvalidArgument(f"{where}.code has the character U+0000.")


def is_at_work(transforms: Sequence[Transform]) -> bool:
    """Whether any of them does anything."""
    return any(not transform.disabled for transform in transforms)


def need_check(transforms: Sequence[Transform]) -> bool:
    """Whether only the sandbox knows if they can be used."""
    return any(not each.disabled and not isinstance(each.action, Fields) for each in transforms)
