"""TLS below both protocols: handshakes, who is refused, and what a peer that is slow or gone can hold."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from broker.model.certificate_validity import Validity, ValidityState, span_in_words
from broker.model.client_certificate import ClientCertificate
from broker.net.first_bytes import HTTP1_API, HTTP2_API, STATES, WEB_PAGES, MakeProtocol
from broker.net.http2.frames import PREFACE
from broker.net.tls.client_certificate import client_certificate
from broker.net.tls.expiry import read_validity
from broker.net.tls.handshake import HandshakeTurns
from broker.net.tls.material import ServerTls, TlsMaterial, UnusableTls, make_context
from broker.net.tls.transport import TlsTransport
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import eventually
from tests.fixtures.tls import Pair, behind_tls, localhost, make_pair, trusting
from tests.limits.raw import calling, request
from tests.net.http1 import Served, serving

HELLO = b"\x16\x03\x01\x02\x00\x01\x00"  # the first bytes of a handshake


class Heard(asyncio.Protocol):
    """What is behind TLS: it keeps what it hears, and does nothing by itself."""

    def __init__(self) -> None:
        self.received = b""
        self.paused = self.ended = False
        self.transport: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsTransport, transport)
        self.certificate = client_certificate(transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class Server:
    """`protocols` behind the handshakes that were done; `shaking`: those that are not."""

    def __init__(self) -> None:
        self.protocols: list[Heard] = []
        self.shaking: set[Any] = set()
        self.port = 0

    def make_protocol(self) -> Heard:
        self.protocols.append(Heard())
        return self.protocols[-1]

    async def connect(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls: dict[str, Any] = {"ssl": context, "server_hostname": "localhost"} if context else {}
        return await asyncio.open_connection("127.0.0.1", self.port, **tls)


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Server]:
    """`options` are those of `behind_tls`."""
    served = Server()
    factory = behind_tls(served.make_protocol, served.shaking, **options)
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    yield served
    server.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with listening() as server:
        yield server


# --- the handshake ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_go_both_ways(server: Server, version: ssl.TLSVersion) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    reader, writer = await server.connect(context)
    sent = bytes(range(256)) * 4_000
    writer.write(sent)
    await eventually(lambda: server.protocols and len(server.protocols[0].received) == len(sent))
    assert server.protocols[0].received == sent
    transport = server.protocols[0].transport
    assert transport
    transport.writelines([sent[:10], sent[10:]])
    assert await reader.readexactly(len(sent)) == sent
    writer.transport.abort()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_a_client_that_speaks_only_old_versions_is_refused(server: Server) -> None:
    context = trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.connect(context)
    await eventually(lambda: not server.shaking)
    assert server.protocols == []


async def test_a_cipher_without_forward_secrecy_is_refused(server: Server) -> None:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES256-GCM-SHA384:ECDHE-ECDSA-AES256-SHA384")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.connect(context)


def test_nothing_is_compressed_and_nothing_renegotiated() -> None:
    context = make_context(TlsMaterial(localhost().certificate, localhost().key))
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("first", [b"", HELLO[:1], HELLO])
async def test_a_handshake_that_never_ends_is_cut_off(first: bytes) -> None:
    async with listening(seconds=0.05) as server:
        reader, writer = await server.connect()
        writer.write(first)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await eventually(lambda: not server.shaking)
        writer.close()


async def test_noise_within_a_handshake_ends_it(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"\x16" + b"noise" * 1_000)
    alert = await reader.read(100)
    assert alert[:1] in (b"\x15", b"")  # https://www.rfc-editor.org/rfc/rfc8446#section-6
    await eventually(lambda: not server.shaking)
    writer.transport.abort()


async def test_handshakes_take_turns_so_that_others_are_served_between_them() -> None:
    done: list[str] = []
    turns = HandshakeTurns()
    for number in range(3):
        turns.ask("192.0.2.1", lambda number=number: done.append(f"handshake {number}"))  # type: ignore[misc]
    for number in range(3):
        await asyncio.sleep(0)
        done.append(f"others {number}")
    assert done == [f"{what} {number}" for number in range(3) for what in ("handshake", "others")]


async def test_handshakes_of_a_flood_from_one_address_wait_for_those_of_other_addresses() -> None:
    done: list[str] = []
    turns = HandshakeTurns()
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"):
        turns.ask(address, lambda address=address: done.append(address))  # type: ignore[misc]
    for _ in range(4):
        await asyncio.sleep(0)
    assert done == ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"]


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /v1/projects/p/topics/t:publish"])
async def test_a_request_in_cleartext_is_told_that_the_port_speaks_tls(server: Server, first: bytes) -> None:
    reader, writer = await server.connect()
    writer.write(first)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"This port speaks TLS: use https://" in answer
    writer.close()
    await eventually(lambda: not server.shaking)
    assert server.protocols == []


@pytest.mark.parametrize("first", [PREFACE, b"\0\0\0", b"\x80\x2e\x01"], ids=["HTTP/2", "zeros", "SSL 2"])
async def test_what_else_is_no_tls_is_closed(server: Server, first: bytes) -> None:
    reader, writer = await server.connect()
    writer.write(first)
    received = b""
    with suppress(ConnectionError):
        received = await reader.read()
    assert received == b""
    await eventually(lambda: not server.shaking)
    writer.close()


# --- a peer that is slow, or gone ------------------------------------------------------------------------


async def test_what_waits_for_a_client_that_does_not_read_is_known_and_paused(server: Server) -> None:
    reader, writer = await server.connect(trusting())
    await eventually(lambda: server.protocols)
    protocol, transport = server.protocols[0], server.protocols[0].transport
    assert transport
    cast(asyncio.Transport, writer.transport).pause_reading()
    sent = b"x" * 30_000_000
    transport.write(sent)
    assert protocol.paused
    assert transport.get_write_buffer_size() > 10_000_000
    cast(asyncio.Transport, writer.transport).resume_reading()
    assert len(await reader.readexactly(len(sent))) == len(sent)
    await eventually(lambda: not protocol.paused)
    writer.transport.abort()


async def test_a_side_that_is_closed_says_so_and_drops_what_still_comes(server: Server) -> None:
    reader, writer = await server.connect(trusting())
    await eventually(lambda: server.protocols)
    transport = server.protocols[0].transport
    assert transport
    transport.write(b"the last")
    transport.write_eof()
    transport.write(b"not this")
    assert await reader.read() == b"the last"
    writer.write(b"too late")
    writer.transport.abort()
    await eventually(lambda: server.protocols[0].ended)
    assert server.protocols[0].received == b""


@pytest.mark.parametrize("announced", [True, False])
async def test_the_end_of_a_client_is_noticed(server: Server, announced: bool) -> None:
    _, writer = await server.connect(trusting())
    await eventually(lambda: server.protocols)
    if announced:
        writer.close()
    else:
        writer.transport.abort()
    await eventually(lambda: server.protocols[0].ended)


async def test_a_record_that_was_changed_on_its_way_ends_the_connection(server: Server) -> None:
    """What a client has sent so far was whole; the changed record is not heard."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await server.connect()
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))
        else:
            break
    writer.write(outgoing.read())
    tls.write(b"good")
    writer.write(outgoing.read())
    tls.write(b"evil")
    record = bytearray(outgoing.read())
    record[-1] ^= 1
    writer.write(bytes(record))
    await eventually(lambda: server.protocols and server.protocols[0].ended)
    assert server.protocols[0].received == b"good"
    writer.transport.abort()


# --- which protocol ---------------------------------------------------------------------------------------


class Apis:
    """An HTTP/2 door that says what it heard."""

    def connection(self, connections: set[Any], tasks: set[Any], others: object) -> Heard:
        self.heard = Heard()
        return self.heard


@asynccontextmanager
async def port(served: Served, apis: Apis) -> AsyncIterator[int]:
    make = MakeProtocol(most_connections=10, tls=ServerTls(TlsMaterial(localhost().certificate, localhost().key)))
    state = {HTTP1_API: served, HTTP2_API: apis, STATES: StateChanges(), WEB_PAGES: served.pages}
    server = await asyncio.get_running_loop().create_server(
        lambda: make(app=served.app, state=state, connections=set(), tasks=set()), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [(["h2"], "h2"), (["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), ([], None), (["spdy/3"], None)],
)
async def test_alpn_chooses_and_rest_comes_first_for_those_that_speak_both(
    offered: list[str], agreed: str | None
) -> None:
    async with serving() as served, port(served, apis := Apis()) as number:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", number, ssl=trusting(alpn=offered), server_hostname="localhost"
        )
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
        if agreed == "h2":
            writer.write(PREFACE)
            await eventually(lambda: hasattr(apis, "heard") and apis.heard.received == PREFACE)
        else:
            writer.write(request("GET", "/a"))
            assert (await reader.readuntil(b"GET /a  0")).startswith(b"HTTP/1.1 200 OK")
        writer.transport.abort()


@pytest.mark.parametrize(("offered", "first"), [("h2", request("GET", "/a")), ("http/1.1", PREFACE)])
async def test_what_was_agreed_on_holds(offered: str, first: bytes) -> None:
    async with serving() as served, port(served, apis := Apis()) as number:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", number, ssl=trusting(alpn=[offered]), server_hostname="localhost"
        )
        writer.write(first)
        with_answer = b""
        with suppress(ConnectionError):
            with_answer = await reader.read()
        assert not with_answer or with_answer.startswith(b"HTTP/1.1 400 ")
        assert not served.seen
        assert not hasattr(apis, "heard")
        writer.transport.abort()


# --- clients' certificates -------------------------------------------------------------------------------

WORKER = (x509.UniformResourceIdentifier("spiffe://example.com/worker"), x509.DNSName("worker.example.com"))


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_pair((), is_authority=True)


def asking(authority: Pair, *, required: bool) -> ssl.SSLContext:
    return make_context(
        TlsMaterial(localhost().certificate, localhost().key, authority.certificate, client_required=required)
    )


def showing(pair: Pair | None, directory: Path) -> ssl.SSLContext:
    context = trusting()
    if pair is not None:
        context.load_cert_chain(*pair.write(directory, "client"))
    return context


async def test_the_names_of_a_client_s_certificate_reach_the_protocol(authority: Pair, tmp_path: Path) -> None:
    async with listening(context=asking(authority, required=True)) as server:
        client = make_pair(WORKER, issuer=authority)
        _, writer = await server.connect(showing(client, tmp_path))
        await eventually(lambda: server.protocols)
        shown = server.protocols[0].certificate
        assert shown == ClientCertificate(
            (("URI", "spiffe://example.com/worker"), ("DNS", "worker.example.com")),
            x509.load_pem_x509_certificate(client.certificate).fingerprint(_sha256()).hex(),
            x509.load_pem_x509_certificate(client.certificate).not_valid_after_utc,
        )
        writer.transport.abort()


def _sha256() -> Any:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


async def test_a_api_sees_the_certificate_of_a_request(authority: Pair, tmp_path: Path) -> None:
    async with serving() as served:
        factory = behind_tls(
            served.make_protocol, served.server.connections, context=asking(authority, required=False)
        )
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        number = server.sockets[0].getsockname()[1]
        for pair in (make_pair(WORKER, issuer=authority), None):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", number, ssl=showing(pair, tmp_path), server_hostname="localhost"
            )
            writer.write(request("GET", "/a"))
            await reader.readuntil(b"GET /a  0")
            shown = served.seen[-1].client_certificate
            assert (shown and shown.names[1]) == (("DNS", "worker.example.com") if pair else None)
            writer.transport.abort()
        server.close()


STRANGERS: dict[str, Callable[[Pair], Pair | None]] = {
    "none": lambda _: None,
    "of another authority": lambda _: make_pair(WORKER, issuer=make_pair((), is_authority=True)),
    "signed by itself": lambda _: make_pair(WORKER),
    "expired": lambda authority: make_pair(WORKER, issuer=authority, days=-1),
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("required", [True, False], ids=["required", "optional"])
async def test_a_client_whose_certificate_is_not_good_is_refused(
    authority: Pair, tmp_path: Path, stranger: str, required: bool
) -> None:
    """Also where none is required: one that is shown must be good."""
    async with listening(context=asking(authority, required=required)) as server:
        pair = STRANGERS[stranger](authority)
        reader, writer = await server.connect(showing(pair, tmp_path))  # to TLS 1.3 the refusal comes later
        if pair is None and not required:
            await eventually(lambda: server.protocols)
            assert server.protocols[0].certificate is None
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await reader.readexactly(1)
            assert server.protocols == []
        writer.transport.abort()


async def test_a_connection_without_tls_has_no_certificate() -> None:
    async with serving() as served, calling(served.url) as caller:
        caller.send(request("GET", "/a"))
        await caller.answer()
        assert served.seen[0].client_certificate is None


# --- what it is made of ----------------------------------------------------------------------------------


def test_new_material_is_for_new_connections_and_what_is_bad_changes_nothing() -> None:
    old, new = localhost(), make_pair()
    tls = ServerTls(TlsMaterial(old.certificate, old.key))
    before = tls.context
    with pytest.raises(UnusableTls, match="it is not the key of the certificate"):
        tls.renew(TlsMaterial(new.certificate, old.key))
    assert tls.context is before
    tls.renew(TlsMaterial(new.certificate, new.key))
    assert tls.context is not before


def test_the_key_is_shown_nowhere() -> None:
    material = TlsMaterial(localhost().certificate, localhost().key)
    assert "PRIVATE" not in repr(material)


@pytest.mark.parametrize("lifetime", [timedelta(hours=6), timedelta(days=90), timedelta(days=3650)])
def test_a_certificate_should_be_renewed_when_a_third_of_its_lifetime_is_left(lifetime: timedelta) -> None:
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    validity, moment = Validity(begins, begins + lifetime), timedelta(seconds=1)
    found = [
        validity.state(now)
        for now in (
            begins,
            begins + lifetime * 2 / 3 - moment,
            begins + lifetime * 2 / 3,
            validity.ends - moment,
            validity.ends,
        )
    ]
    valid, renew, expired = ValidityState.VALID, ValidityState.RENEW, ValidityState.EXPIRED
    assert found == [valid, valid, renew, renew, expired]


def test_the_validity_of_a_certificate_is_read_from_its_pem() -> None:
    validity = read_validity(make_pair(days=2, since_days=1).certificate)
    assert validity.lifetime == timedelta(days=3)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(days=20, hours=3), "20 days"),
        (timedelta(days=1, hours=5), "29 hours"),
        (timedelta(minutes=90), "90 minutes"),
        (timedelta(seconds=-3), "0 minutes"),
    ],
)
def test_what_is_left_is_said_in_words(span: timedelta, words: str) -> None:
    assert span_in_words(span) == words
