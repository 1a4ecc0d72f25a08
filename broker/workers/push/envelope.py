"""STUB: the request that carries a message to an endpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.domain.delivery import StoredMessage
from broker.domain.subscription import Subscription
from broker.workers.push.digest_envelope import DigestItem


@dataclass(slots=True)
class PushRequest:
    url: str
    body: bytes
    headers: Mapping[str, str]
    want_body: bool = False


class Envelope:
    def __init__(self, subscription: Subscription) -> None: ...

    def request(
        self, message: StoredMessage, *, shard_id: int, attempt_number: int, now: datetime, token: str | None
    ) -> PushRequest:
        raise NotImplementedError

    def digest(self, items: Sequence[DigestItem], *, now: datetime, token: str | None) -> PushRequest:
        raise NotImplementedError
