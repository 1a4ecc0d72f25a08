"""Whom an issuer's tokens speak for, and what policies give to them; a thousand at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio

from broker.access.credentials.authenticator import Shown
from broker.access.credentials.issuer_tokens import IssuerTokens
from broker.access.principals.oidc_issuer import OidcIssuer
from broker.api.permissions import GET_TOPIC
from broker.model.errors import PermissionDenied
from tests.access.test_oidc_issuers import Issuer, running_issuer
from tests.fixtures.access import Guarded, guarded

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = {"email": "ann@shop.example", "email_verified": True}
MANY = 1_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def issuer() -> AsyncIterator[Issuer]:
    async with running_issuer() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trusting(issuer: Issuer, clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    described = OidcIssuer(
        issuer=issuer.url, audiences=["broker"], domains=["shop.example"], attribute_claims=["repository"]
    )
    with clone() as database_url:
        async with guarded(database_url, oidc_issuers=(described,)) as running:
            await running.ok("PUT", f"{running.project}/topics/orders", {})
            yield running


async def _give(broker: Guarded, *members: str, role: str = "roles/pubsub.viewer") -> None:
    policy = {"bindings": [{"role": role, "members": list(members)}]}
    await broker.ok("POST", f"{broker.project}/topics/orders:setIamPolicy", {"policy": policy})


async def _check(broker: Guarded, shown: str) -> int:
    headers = {"Authorization": shown}
    return (await broker.client.get(f"/v1/{broker.project}/topics/orders", headers=headers)).status_code


def _shown(issuer: Issuer, broker: Guarded, **claims: Any) -> str:
    return issuer.token(broker, **claims).authorization.decode()


@pytest.mark.parametrize(
    ("member", "allowed", "not_allowed"),
    [
        ("user:ann@shop.example", ANN, {"email": "bob@shop.example", "email_verified": True}),
        ("domain:shop.example", ANN, {"email": "ann@other.example", "email_verified": True}),
        ("group:ops@shop.example", {"groups": ["ops@shop.example"]}, {"groups": ["dev@shop.example"]}),
        ("principal://{host}/subject/7", {}, {"sub": "8"}),
        ("principalSet://{host}/group/ops", {"groups": ["ops"]}, {"groups": ["ops@shop.example"]}),
        (
            "principalSet://{host}/attribute.repository/shop/app",
            {"repository": "shop/app"},
            {"repository": "shop/app2"},
        ),
        ("allAuthenticatedUsers", {}, None),
    ],
)
async def test_a_policy_gives_to_whom_the_token_speaks_for_and_to_nobody_else(
    issuer: Issuer, trusting: Guarded, member: str, allowed: dict[str, Any], not_allowed: dict[str, Any] | None
) -> None:
    await _give(trusting, member.replace("{host}", issuer.url.removeprefix("http://")))
    assert await _check(trusting, _shown(issuer, trusting, jti=member, **allowed)) == 200
    other = "" if not_allowed is None else _shown(issuer, trusting, jti=member, **not_allowed)
    assert await _check(trusting, other) == (401 if not_allowed is None else 403)


async def test_a_thousand_principals_at_once_are_each_themselves_and_verified_once(
    issuer: Issuer, trusting: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = 0
    check = IssuerTokens.check

    async def counted(self: IssuerTokens, *given: Any, **named: Any) -> Any:
        nonlocal verified
        verified += 1
        return await check(self, *given, **named)

    monkeypatch.setattr(IssuerTokens, "check", counted)
    people = [f"number-{number}@shop.example" for number in range(MANY)]
    await _give(trusting, *(f"user:{person}" for person in people[::2]))
    shown = [issuer.token(trusting, email=person, email_verified=True, sub=person) for person in people]
    gate = trusting.broker.gate
    assert gate is not None

    in_a_turn = asyncio.Semaphore(50)  # of the event loop: connections take turns as well

    async def may_look(one: Shown) -> bool:
        async with in_a_turn:
            caller = await gate.caller(one, GET_TOPIC)
            try:
                await gate.allow(caller, GET_TOPIC, f"{trusting.project}/topics/orders")
            except PermissionDenied:
                return False
            return True

    for _ in range(2):
        assert await asyncio.gather(*map(may_look, shown)) == [True, False] * (MANY // 2)
    assert verified == MANY


async def test_a_credential_that_is_given_twice_or_over_two_lines_is_none(
    issuer: Issuer, trusting: Guarded
) -> None:
    await _give(trusting, "allAuthenticatedUsers")
    good = _shown(issuer, trusting, jti="twice")
    host, port = str(trusting.client.base_url).removeprefix("http://").rstrip("/").split(":")
    async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
        call: Any = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
        name = f"{trusting.project}/topics/orders".encode()
        request = b"\x0a" + bytes([len(name)]) + name
        assert name in await call(request, metadata=(("authorization", good),))
        for values in ((good, good), (good, "Bearer x"), ("Bearer x", good)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(request, metadata=tuple(("authorization", value) for value in values))
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    folded = good.replace(" ", "\r\n ")
    start = f"GET /v1/{trusting.project}/topics/orders HTTP/1.1\r\nHost: {host}\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{start}Authorization: {folded}\r\n\r\n".encode())
    assert (await reader.readline()).split(b" ")[1] in (b"400", b"401")
    writer.close()
