"""STUB: one POST to an endpoint, and what came of it."""

from dataclasses import dataclass

from broker.workers.push.address_policy import AddressPolicy
from broker.workers.push.envelope import PushRequest

MAX_BODY = 64 * 1024
SUCCESS = frozenset({102, 200, 201, 202, 204})


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Unreachable:
    reason: str


class PushClient:
    def __init__(self, *, policy: AddressPolicy = AddressPolicy(), ca_file: str = "") -> None: ...  # noqa: B008

    async def post(self, request: PushRequest) -> Answer | Unreachable:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
