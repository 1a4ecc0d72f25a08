"""Where pushes may go, and whom the broker believes to be an endpoint: brokers with the settings for it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes, new_project

HERE = ("127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0x7F.1", "017700000001", "0177.0.0.1")
ALSO_HERE = (
    "127.1",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
)
ODD = (
    "\uff11\uff12\uff17.0.0.1",
    "127。0。0。1",
    "ⓛocalhost",
    "127.0.0.1%00",
    "127.0.0.1%2f",
    "[fe80::1%25lo]",
    "[::127.0.0.1]",
)
PRIVATE = ("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "[fd00::1]", "[fe80::1]")
MORE_PRIVATE = (
    "[64:ff9b::a00:1]",
    "[2002:7f00:1::]",
    "[fec0::1]",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.0.1",
    "240.0.0.1",
)
SPELLINGS = (*HERE, *ALSO_HERE, *ODD, *PRIVATE, *MORE_PRIVATE)


@pytest.fixture(scope="module")
def denying(
    clone: Callable[[], AbstractContextManager[str]], push_sink: PushSink
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers: one denies private addresses; one allows some of them, and trusts the sink's CA."""
    deny = {"BROKER_PUSH_PRIVATE_ADDRESSES": "deny"}
    some = deny | {
        "BROKER_PUSH_ALLOWED_NETWORKS": "127.0.0.0/30,fd12::/16",
        "BROKER_PUSH_CA_FILE": push_sink.ca_file,
    }
    with clone() as first, clone() as second:
        brokers = (
            BrokerProcess("--database-url", first, "--port", "0", env=deny),
            BrokerProcess("--database-url", second, "--port", "0", env=some),
        )
        try:
            yield brokers[0].wait_until_ready(), brokers[1].wait_until_ready()
        finally:
            for broker in brokers:
                broker.stop()


async def pushes_of(broker: BrokerProcess, push_sink: PushSink) -> AsyncIterator[Pushes]:
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, new_project())
        await rest.create_topic()
        yield Pushes(rest, push_sink)


@pytest.fixture
async def strict(denying: tuple[BrokerProcess, BrokerProcess], push_sink: PushSink) -> AsyncIterator[Pushes]:
    async for pushes in pushes_of(denying[0], push_sink):
        yield pushes


@pytest.fixture
async def lenient(denying: tuple[BrokerProcess, BrokerProcess], push_sink: PushSink) -> AsyncIterator[Pushes]:
    async for pushes in pushes_of(denying[1], push_sink):
        yield pushes


async def push_to_hosts(pushes: Pushes, hosts: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Subscriptions that push to the sink's port of these hosts, by host, but for those that are refused."""
    path = pushes.path()
    port = urlsplit(pushes.sink.url).port
    names = {}
    for n, host in enumerate(hosts):
        config = {"pushEndpoint": f"http://{host}:{port}{path}"}
        body = {"topic": pushes.rest.topic(), "pushConfig": config}
        response = await pushes.rest.call("PUT", pushes.rest.subscription(f"sub{n}"), body)
        assert response.status_code in (200, 400), response.text
        if response.status_code == 200:
            names[host] = f"sub{n}"
    await pushes.rest.publish("x")
    return path, names


async def first_failure(pushes: Pushes, name: str) -> str:
    """Why the first attempt failed."""

    async def failed() -> str:
        failures = await pushes.failures(name)
        return f"{failures[-1].get('status', '')}{failures[-1]['detail']}" if failures else ""

    found: str = await eventually(failed)
    return found


async def why_nothing_comes(pushes: Pushes, name: str) -> str:
    """Why it is paused or, if it is not, why the first attempt failed."""

    async def said() -> str:
        if reason := (await pushes.status(name)).get("pausedReason"):
            return str(reason)
        failures = await pushes.failures(name)
        return f"{failures[-1].get('status', '')}{failures[-1]['detail']}" if failures else ""

    found: str = await eventually(said)
    return found


async def test_no_spelling_of_a_private_address_is_pushed_to(strict: Pushes) -> None:
    """A8: with push_private_addresses=deny; refused when it is created, or when it would be connected to."""
    path, names = await push_to_hosts(strict, SPELLINGS)
    assert "127.0.0.1" in names, "as a name could resolve to it later, so can this be refused later"
    reasons = await asyncio.gather(*[why_nothing_comes(strict, name) for name in names.values()])
    assert await strict.sink.requests(path) == []
    said = dict(zip(names, reasons, strict=True))
    assert not any(reason[:3].isdigit() for reason in reasons), "no answer of anybody"
    for host in ("127.0.0.1", "localhost", *PRIVATE):
        assert "policy" in said[host], "not because nobody is there"


async def test_allowed_networks_are_pushed_to_and_no_others(lenient: Pushes) -> None:
    """A8: push_allowed_networks, in every spelling of an address."""
    path, names = await push_to_hosts(
        lenient, ("127.0.0.1", "localhost", "10.0.0.1", "127.0.0.9", "169.254.169.254")
    )
    for name in ("10.0.0.1", "127.0.0.9", "169.254.169.254"):
        assert "policy" in await why_nothing_comes(lenient, names[name])
    assert len(await lenient.wait_for(path, 2)) == 2


async def test_an_endpoint_is_trusted_by_the_ca_file_and_by_its_name(lenient: Pushes) -> None:
    """A8: push_ca_file; the certificate is for localhost only."""
    good, wrong = lenient.path(), lenient.path()
    await lenient.rest.create_subscription("good", pushConfig={"pushEndpoint": lenient.sink.tls_url + good})
    await lenient.rest.create_subscription(
        "wrong", pushConfig={"pushEndpoint": lenient.sink.wrong_host_url + wrong}
    )
    await lenient.rest.publish("x")
    assert await lenient.texts(good, 1) == ["x"]
    assert "certificate" in (await first_failure(lenient, "wrong")).lower()
    assert await lenient.sink.requests(wrong) == []


async def test_an_endpoint_of_an_unknown_authority_is_not_trusted(pushes: Pushes) -> None:
    """A8: its certificate is verified by default; what does not speak TLS is told apart."""
    path = pushes.path()
    await pushes.rest.create_subscription("tls", pushConfig={"pushEndpoint": pushes.sink.tls_url + path})
    plain = pushes.sink.url.replace("http://127.0.0.1", "https://localhost") + path
    await pushes.rest.create_subscription("plain", pushConfig={"pushEndpoint": plain})
    nobody = f"http://{uuid.uuid4().hex}.invalid{path}"
    await pushes.rest.create_subscription("nobody", pushConfig={"pushEndpoint": nobody})
    await pushes.rest.create_subscription("closed", pushConfig={"pushEndpoint": "http://127.0.0.1:9" + path})
    await pushes.rest.publish("x")
    reasons = {name: await first_failure(pushes, name) for name in ("tls", "plain", "nobody", "closed")}
    assert "certificate" in reasons["tls"].lower()
    assert len(set(reasons.values())) == 4, reasons
    assert await pushes.sink.requests(path) == []
    await pushes.end()
