"""Converts transforms from and to google.pubsub.v1.MessageTransform."""

from collections.abc import Iterable
from typing import Any

import msgspec

from broker.api.generated import messages
from broker.api.google.passthrough import decode_passthrough, passthrough, set_passthrough
from broker.model.errors import InvalidArgument
from broker.model.field_transform import Fields
from broker.model.transforms import FIELD, Compression, JavascriptUdf, Transform, Transforms

_ZLIB = 1  # google.pubsub.v1.Compression.CompressionAlgorithm
_MODES = {1: "COMPRESS", 2: "DECOMPRESS"}
_NUMBERS = {mode: number for number, mode in _MODES.items()}
_JSON_NAMES = {"javascript_udf": "javascriptUdf", "ai_inference": "aiInference", "compression": "compression"}
_FIELDS = msgspec.json.Decoder(Fields)


def transforms_from(given: Iterable[Any], where: str = FIELD) -> Transforms:
    """Decodes the transforms of a topic or subscription.  Raises InvalidArgument."""
    return tuple(transform_from(message, f"{where}[{index}]") for index, message in enumerate(given))


def transform_from(message: Any, where: str) -> Transform:
    kind, said = message.WhichOneof("transform"), passthrough(message)
    if kind is not None and said is not None:
        raise InvalidArgument(f"{where} has two transforms, {_JSON_NAMES[kind]} and fields: only one can be given.")
    if said is not None:
        fields = decode_passthrough(_FIELDS, said, f"{where}.fields")
        return Transform(fields=fields, disabled=message.disabled, enabled=message.enabled)
    if kind is None:
        raise InvalidArgument(f"{where} has no transform: it needs one of javascriptUdf, compression and fields.")
    if kind == "ai_inference":
        raise InvalidArgument(f"{where}.aiInference is not supported: this broker calls no models.")
    if kind == "compression":
        compression = _compression(message.compression, f"{where}.compression")
        return Transform(compression=compression, disabled=message.disabled, enabled=message.enabled)
    udf = JavascriptUdf(message.javascript_udf.function_name, message.javascript_udf.code)
    return Transform(javascript_udf=udf, disabled=message.disabled, enabled=message.enabled)


def _compression(message: Any, where: str) -> Compression:
    if message.compression_algorithm != _ZLIB:
        raise InvalidArgument(f"{where}.compressionAlgorithm must be ZLIB, the one that this broker has.")
    mode = _MODES.get(message.compression_mode)
    if mode is None:
        raise InvalidArgument(f"{where}.compressionMode must be COMPRESS or DECOMPRESS.")
    return Compression(mode="COMPRESS" if mode == "COMPRESS" else "DECOMPRESS")


def transform_messages(transforms: Transforms) -> list[Any]:
    return [_message(transform) for transform in transforms]


def _message(transform: Transform) -> Any:
    message = messages.MessageTransform(disabled=transform.disabled, enabled=transform.enabled)
    if transform.compression is not None:
        message.compression.compression_algorithm = _ZLIB
        message.compression.compression_mode = _NUMBERS[transform.compression.mode]
    elif transform.javascript_udf is not None:
        message.javascript_udf.function_name = transform.javascript_udf.function_name
        message.javascript_udf.code = transform.javascript_udf.code
    else:
        set_passthrough(message, msgspec.json.encode(transform.fields))
    return message
