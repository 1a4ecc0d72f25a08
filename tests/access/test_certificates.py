"""Clients' certificates as credentials, over both APIs: whom they are of, and what goes before them."""

import ssl
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from cryptography import x509
from google.pubsub_v1 import types

from broker.access.principals.certificate_principals import parse_certificate_principals
from broker.net.tls.material import ServerTls, TlsMaterial
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.tls import Pair, localhost, make_pair, trusting

WORKER = x509.UniformResourceIdentifier("spiffe://example.com/worker")
PRINCIPALS = """
[[certificate]]
uri = "spiffe://example.com/worker"
member = "serviceAccount:worker@guarded.iam.broker.internal"

[[certificate]]
dns = "Reports.example.com"
member = "user:reports@example.com"

[[certificate]]
email = "ada@example.com"
member = "user:ada@example.com"
"""


@cache
def authority() -> Pair:
    return make_pair((), is_authority=True)


@pytest.fixture
async def broker(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    """It asks for certificates, and lets those in who show none."""
    tls = ServerTls(
        TlsMaterial(localhost().certificate, localhost().key, authority().certificate, client_required=False)
    )
    principals = parse_certificate_principals(PRINCIPALS)
    with clone() as database_url:
        async with guarded(database_url, tls=tls, certificate_principals=principals) as running:
            yield running


class _Client:
    """It shows a certificate with these names."""

    def __init__(self, broker: Guarded, directory: Path, *names: x509.GeneralName) -> None:
        self._broker = broker
        self._pair = make_pair(names, issuer=authority())
        self._context: ssl.SSLContext = trusting()
        self._context.load_cert_chain(*self._pair.write(directory, "client"))

    async def rest(self, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._broker.client.base_url, verify=self._context) as client:
            return await client.get(f"/v1/{self._broker.project}/topics", headers=headers)

    async def metrics(self) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._broker.client.base_url, verify=self._context) as client:
            return await client.get("/metrics")

    async def grpc(self, **metadata: str) -> grpc.StatusCode:
        credentials = grpc.ssl_channel_credentials(localhost().certificate, self._pair.key, self._pair.certificate)
        address = f"localhost:{self._broker.client.base_url.port}"
        async with grpc.aio.secure_channel(address, credentials) as channel:
            call: Any = channel.unary_unary("/google.pubsub.v1.Publisher/ListTopics")
            request = types.ListTopicsRequest.serialize(types.ListTopicsRequest(project=self._broker.project))
            try:
                await call(request, metadata=tuple(metadata.items()))
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    async def is_let_in(self, **shown: str) -> bool:
        """Over both APIs, which agree."""
        over_rest, over_grpc = (await self.rest(**shown)).status_code, await self.grpc(**shown)
        if (over_rest, over_grpc) == (200, grpc.StatusCode.OK):
            return True
        assert (over_rest, over_grpc) == (401, grpc.StatusCode.UNAUTHENTICATED)
        return False


async def _allow(broker: Guarded, member: str, role: str = "roles/pubsub.viewer") -> None:
    policy = {"bindings": [{"role": role, "members": [member]}]}
    await broker.ok("POST", f"{broker.project}:setIamPolicy", {"policy": policy})


async def test_a_certificate_lets_in_the_account_that_its_name_is_given_to(broker: Guarded, tmp_path: Path) -> None:
    worker = _Client(broker, tmp_path, WORKER, x509.DNSName("worker.example.com"))
    refused = await worker.rest()
    assert refused.status_code == 401
    assert "a service account that does not exist" in refused.text
    account = await broker.account("worker", role="roles/pubsub.viewer")
    assert await worker.is_let_in()
    await broker.ok("POST", f"{account['name']}:disable", {})
    assert not await worker.is_let_in()


@pytest.mark.parametrize(
    ("name", "member"),
    [
        (x509.DNSName("reports.EXAMPLE.com"), "user:reports@example.com"),
        (x509.RFC822Name("ada@example.com"), "user:ada@example.com"),
        (x509.RFC822Name("ada@example.com"), "domain:example.com"),
    ],
)
async def test_a_name_may_be_of_dns_or_an_address(
    broker: Guarded, tmp_path: Path, name: x509.GeneralName, member: str
) -> None:
    client = _Client(broker, tmp_path, name)
    denied = await client.rest()
    assert (denied.status_code, denied.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
    await _allow(broker, member)
    assert await client.is_let_in()


async def test_a_certificate_lets_in_whoever_reads_metrics(broker: Guarded, tmp_path: Path) -> None:
    """Each gets the series of the projects that it may read, as with a token."""
    client = _Client(broker, tmp_path, x509.RFC822Name("ada@example.com"))
    stranger = _Client(broker, tmp_path, x509.RFC822Name("eve@example.com"))
    await broker.ok("PUT", f"{broker.project}/topics/orders", {})
    assert (await client.metrics()).status_code == 403
    await _allow(broker, "user:ada@example.com", "roles/monitoring.viewer")
    answer = await client.metrics()
    assert (answer.status_code, 'topic="orders"' in answer.text) == (200, True)
    refused = await stranger.metrics()
    assert (refused.status_code, "no name that is given to a principal" in refused.text) == (401, True)


async def test_names_of_nobody_and_of_two_principals_let_nobody_in(broker: Guarded, tmp_path: Path) -> None:
    await _allow(broker, "allAuthenticatedUsers")
    for names, why in (
        ([x509.UniformResourceIdentifier("spiffe://example.com/worker/2")], "no name that is given to a principal"),
        ([x509.DNSName("example.com"), x509.DNSName("*.example.com")], "no name that is given to a principal"),
        ([x509.DNSName("ada@example.com")], "no name that is given to a principal"),
        ([x509.DNSName("reports.example.com"), x509.RFC822Name("ada@example.com")], "more than one principal"),
    ):
        client = _Client(broker, tmp_path, *names)
        assert why in (await client.rest()).text
        assert not await client.is_let_in()


async def test_a_token_or_an_api_key_goes_before_the_certificate_and_fails_without_it(
    broker: Guarded, tmp_path: Path
) -> None:
    stranger = _Client(broker, tmp_path, x509.DNSName("stranger.example.com"))
    assert await stranger.is_let_in(authorization=broker.bearer()["Authorization"])
    ada = _Client(broker, tmp_path, x509.RFC822Name("ada@example.com"))
    await _allow(broker, "user:ada@example.com")
    assert await ada.is_let_in()
    assert not await ada.is_let_in(authorization="Bearer x")
    assert not await ada.is_let_in(authorization="certificate")
    assert not await ada.is_let_in(**{"x-goog-api-key": "brk-x"})
    account = await broker.key(await broker.account("powerless", role=""))
    assert (await ada.rest(**broker.bearer(account))).status_code == 403


async def test_a_certificate_that_has_expired_counts_no_longer_on_connections_that_are_older(
    broker: Guarded, tmp_path: Path
) -> None:
    ada = _Client(broker, tmp_path, x509.RFC822Name("ada@example.com"))
    await _allow(broker, "user:ada@example.com")
    assert await ada.is_let_in()
    broker.clock.ahead = timedelta(days=366)
    assert not await ada.is_let_in()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[certificate]]\nuri = 'a'", "member must be"),
        ("[[certificate]]\nmember = 'user:a@b.c'", "one of dns, uri, email"),
        ("[[certificate]]\nuri = 'a'\ndns = 'b'\nmember = 'user:a@b.c'", "one of dns, uri, email"),
        ("[[certificate]]\ndns = '*.b.c'\nmember = 'user:a@b.c'", "without *"),
        ("[[certificate]]\nuri = 'a'\nmember = 'allUsers'", "member must be"),
        ("[[certificate]]\nuri = 'a'\nmember = 'user:a@p.iam.broker.internal'", "service accounts"),
        ("[[certificate]]\nuri = 'a'\nmember = 'serviceAccount:a@b.c'", "service accounts"),
        ("[[certificate]]\ndns = 'a'\nmember = 'user:a@b.c'\n" * 2, "twice"),
        ("[[principal]]", "nothing else"),
        ("=", "no TOML"),
    ],
)
def test_a_file_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("*", r"\*")):
        parse_certificate_principals(text)
