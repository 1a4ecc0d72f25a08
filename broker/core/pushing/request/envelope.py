"""The request that carries a message to an endpoint, in the format of Google's service.

    wrapped (no wrapper or pubsubWrapper)   JSON: the message, both spellings of its id and time, the subscription
    unwrapped (noWrapper)                   the data alone
    unwrapped with writeMetadata            the same, and headers: x-goog-pubsub-…, and the attributes

https://cloud.google.com/pubsub/docs/push#receive_push, …/payload-unwrapping.  `attributes` and `data` are present
even if empty, as in the emulator's requests, because a receiver may read them without a check.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from broker.access.secrets.secrets import Secrets
from broker.access.secrets.webhook_secrets import opened
from broker.core.pushing.request.attribute_headers import attribute_headers, is_header_value
from broker.core.pushing.request.digest_envelope import DigestItem
from broker.core.pushing.request.webhook_signature import WebhookSigner
from broker.model.delivery import StoredMessage
from broker.model.message_id import id_of
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp

_FROM_US = {  # receivers check these
    "Accept": "application/json",
    "From": "noreply@google.com",
    "User-Agent": "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)",
}
_RAW = {"Content-Type": "application/octet-stream"} | _FROM_US
_JSON = {"Content-Type": "application/json"} | _FROM_US


@dataclass(slots=True)
class PushRequest:
    """A POST.  `want_body`: the answer's body counts, so it is waited for.  `headers` may be shared: read only."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    want_body: bool = False


class _Message(msgspec.Struct, omit_defaults=True, gc=False):
    attributes: msgspec.Raw
    data: bytes
    message_id_camel: str = msgspec.field(name="messageId")
    message_id: str
    ordering_key: str = msgspec.field(name="orderingKey", default="")
    publish_time_camel: str = msgspec.field(name="publishTime", default="")
    publish_time: str = ""


class _Wrapped(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    message: _Message
    subscription: msgspec.Raw
    delivery_attempt: int = 0


class _DigestEntry(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    message: _Message
    delivery_attempt: int = 0


class _Digest(msgspec.Struct):
    subscription: msgspec.Raw
    messages: list[_DigestEntry]


_encode = msgspec.json.Encoder().encode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Envelope:
    """Makes the requests of one subscription; a changed subscription needs a new one."""

    def __init__(self, subscription: Subscription, secrets: Secrets) -> None:
        """`secrets` decrypt those that sign.  Raises CannotOpen."""
        config, keys = subscription.push_config, opened(subscription, secrets)
        self._url = config.endpoint.partition("#")[0]
        self._name = subscription.name
        self._subscription = msgspec.Raw(_encode(subscription.name))
        self._subscription_id = subscription.subscription_id
        self._shows_attempt = subscription.shows_delivery_attempts
        self._unwrapped = config.no_wrapper is not None
        self._write_metadata = config.no_wrapper is not None and config.no_wrapper.write_metadata
        self._signer = WebhookSigner(keys) if keys else None
        self._authorized: tuple[str | None, Mapping[str, str]] = (
            None,
            _JSON,
        )  # the last token, and the headers that contain it
        self._time: tuple[datetime | None, str] = (None, "")  # the last publish time, and its formatted text

    def request(
        self, message: StoredMessage, *, shard_id: int, attempt_number: int, now: datetime, token: str | None
    ) -> PushRequest:
        """The request that delivers a message for the `attempt_number`-th time.

        `now` is signed if the subscription signs its requests; `token` is the bearer token, if there is one.
        """
        message_id = id_of(shard_id, message)
        if self._unwrapped:
            body = message.data
            headers = self._unwrapped_headers(message, message_id, token)
        else:
            attempt = attempt_number if self._shows_attempt else 0
            body = _encode(_Wrapped(self._message(message, message_id), self._subscription, attempt))
            headers = self._headers(token)
        if self._signer is not None:
            headers = {**headers, **self._signer.headers(self._webhook_id(message_id), body, now=now)}
        return PushRequest(self._url, body, headers)

    def digest(self, items: Sequence[DigestItem], *, now: datetime, token: str | None) -> PushRequest:
        """The request that delivers all `items` (one or more), wrapped."""
        entries = [
            _DigestEntry(
                self._message(item.message, id_of(item.shard_id, item.message)),
                item.attempt_number if self._shows_attempt else 0,
            )
            for item in items
        ]
        body, headers = _encode(_Digest(self._subscription, entries)), self._headers(token)
        if self._signer is not None:
            # The same for a repeat of the same messages; different for other messages between the same first and
            # last ones.
            ids = sorted(entry.message.message_id for entry in entries)
            webhook_id = self._webhook_id(hashlib.sha256(",".join(ids).encode()).hexdigest()[:32])
            headers = {**headers, **self._signer.headers(webhook_id, body, now=now)}
        return PushRequest(self._url, body, headers, want_body=True)

    def _webhook_id(self, what: str) -> str:
        return f"msg_{what}_{self._subscription_id}"

    def _message(self, message: StoredMessage, message_id: str) -> _Message:
        time = self._publish_time(message)
        key = message.ordering_key or ""
        return _Message(msgspec.Raw(message.attributes), message.data, message_id, message_id, key, time, time)

    def _publish_time(self, message: StoredMessage) -> str:
        if message.publish_time != self._time[0]:  # a batch has one publish time
            self._time = (message.publish_time, format_timestamp(message.publish_time))
        return self._time[1]

    def _headers(self, token: str | None) -> Mapping[str, str]:
        if token != self._authorized[0]:
            self._authorized = (token, _JSON | {"Authorization": f"Bearer {token}"} if token else _JSON)
        return self._authorized[1]

    def _unwrapped_headers(self, message: StoredMessage, message_id: str, token: str | None) -> Mapping[str, str]:
        headers = _RAW.copy()
        if self._write_metadata:
            headers |= self._metadata(message, message_id)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _metadata(self, message: StoredMessage, message_id: str) -> dict[str, str]:
        attributes = _decode_attributes(message.attributes)
        headers = {
            "Content-Type" if name.lower() == "content-type" else name: value
            for name, value in attribute_headers(attributes).items()
        }
        headers["x-goog-pubsub-subscription-name"] = self._name
        headers["x-goog-pubsub-message-id"] = message_id
        headers["x-goog-pubsub-publish-time"] = self._publish_time(message)
        if message.ordering_key and is_header_value(message.ordering_key):
            headers["x-goog-pubsub-ordering-key"] = message.ordering_key
        return headers
