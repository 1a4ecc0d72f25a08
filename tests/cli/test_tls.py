"""`broker serve` with TLS: its files, what it says, clients that trust it, and certificates that are renewed."""

import asyncio
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from broker.app.settings.checks import read_password
from broker.app.settings.fields import Settings
from broker.cli.server.tls_files import Renewal, TlsFiles
from broker.db.database_url import check_database_url, with_password, without_password
from broker.net.tls.expiry import read_validity
from tests.cli.fake_postgres import READY, answering_logins
from tests.cli.processes import complaint, faults
from tests.fixtures.broker import PATIENCE_SECONDS, BrokerProcess, eventually
from tests.fixtures.metrics import Scraped
from tests.fixtures.tls import Pair, localhost, make_pair, trusting


def serve_with(certificate: str, key: str) -> tuple[str, ...]:
    return ("serve", "--port", "0", "--tls-certificate", certificate, "--tls-key", key)


# --- what will not do ------------------------------------------------------------------------------------


def test_a_key_that_is_of_another_certificate(tmp_path: Path) -> None:
    certificate, _ = localhost().write(tmp_path, "one")
    _, key = make_pair().write(tmp_path, "other")
    said = complaint(*serve_with(certificate, key), code=2)
    assert said == f"--tls-key {key}: it is not the key of the certificate"


def test_a_key_with_a_passphrase(tmp_path: Path) -> None:
    certificate, key = localhost().write(tmp_path, "localhost")
    loaded = serialization.load_pem_private_key(localhost().key, None)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        locked = serialization.BestAvailableEncryption(b"secret")
        Path(key).write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, locked))
        said = complaint(*serve_with(certificate, key), code=2)
        assert "it is encrypted; write it without a passphrase (`openssl pkey -in FILE -out NEW`)" in said


@pytest.mark.parametrize("given", ["certificate", "key"])
def test_one_of_the_two_alone(tmp_path: Path, given: str) -> None:
    paths = dict(zip(("certificate", "key"), localhost().write(tmp_path, "localhost"), strict=True))
    other = "key" if given == "certificate" else "certificate"
    said = complaint("serve", f"--tls-{given}", paths[given], code=2)
    assert said == f"--tls-{given} needs --tls-{other} beside it"


def test_a_certificate_that_is_damaged(tmp_path: Path) -> None:
    certificate, key = localhost().write(tmp_path, "localhost")
    lines = Path(certificate).read_text().splitlines()
    Path(certificate).write_text("\n".join([lines[0], *lines[3:]]))
    said = complaint(*serve_with(certificate, key), code=2)
    assert said.startswith("--tls-certificate must be a file with certificates (PEM), not ")
    assert "a certificate in it cannot be read" in said


# --- the password of a database --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["postgresql://user@h/db", "postgresql+psycopg://user@h:1,i:2/db?sslmode=require", "host=h dbname=db"]
)
def test_a_password_from_a_file_is_libpq_s_whatever_is_in_it(url: str) -> None:
    import psycopg.conninfo

    password = "p'w @/?&%=\\ \u00e9"
    given = check_database_url(with_password(url, password))
    assert psycopg.conninfo.conninfo_to_dict(given)["password"] == password
    assert without_password(given).endswith(("db", "password=***"))


@pytest.mark.parametrize(
    "url", ["postgresql://user:pw@h/db", "postgresql://h/db?password=pw", "host=h password=pw"]
)
def test_two_passwords_are_one_too_many(tmp_path: Path, url: str) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    said = complaint("migrate", "--database-url", url, "--database-password-file", str(file), code=2)
    assert said.endswith(": the database URL has a password too: one of them has to go")
    assert "secret" not in said


def test_a_password_file_may_begin_with_a_byte_order_mark_and_end_in_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xef\xbb\xbfs3cret\r\n\n")
    assert read_password(str(file)) == "s3cret"


_BLANK = "it begins or ends with white space (a password that does so has to be in the URL, as %20)"


@pytest.mark.parametrize(
    ("content", "why"), [("", "it is empty"), ("a\nb\n", "it has more than one line"), ("s3cret \n", _BLANK)]
)
def test_a_password_file_that_has_no_password(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    said = complaint(
        "migrate", "--database-url", "postgresql://h/db", "--database-password-file", str(file), code=2
    )
    assert said.startswith("--database-password-file must be a file with one line, not ")
    assert said.endswith(why)
    assert "s3cret" not in said


def test_the_options_of_tls_to_the_database_are_taken_from_its_url() -> None:
    """A server that speaks none is refused where the URL asks for it, and not spoken to."""
    with answering_logins(READY) as url:
        said = complaint("migrate", "--database-url", f"{url}?sslmode=require")
    assert "server does not support SSL, but SSL was required" in said
    assert "secret" not in said


# --- renewal ---------------------------------------------------------------------------------------------


class Renewing:
    """A renewal of files in a directory; `got`: the certificates that it gave."""

    def __init__(self, directory: Path, pair: Pair) -> None:
        self.paths = pair.write(directory, "port")
        self.directory = directory
        self.got: list[bytes] = []
        settings = Settings(tls_certificate=self.paths[0], tls_key=self.paths[1])
        self.renewal = Renewal(TlsFiles(settings), lambda tls: self.got.append(tls.certificate))

    def write(self, certificate: bytes, key: bytes | None = None) -> None:
        """As programs that renew do: a new file in the place of the old one."""
        for path, content in zip(self.paths, (certificate, key), strict=True):
            if content is not None:
                Path(f"{path}.new").write_bytes(content)
                Path(f"{path}.new").replace(path)


@pytest.fixture
def renewing(tmp_path: Path) -> Renewing:
    return Renewing(tmp_path, localhost())


def test_files_that_change_are_used(renewing: Renewing, caplog: pytest.LogCaptureFixture) -> None:
    renewing.renewal.check()
    assert renewing.got == []
    new = make_pair()
    renewing.write(new.certificate, new.key)
    with caplog.at_level(logging.INFO):
        renewing.renewal.check()
        renewing.renewal.check()
    assert renewing.got == [new.certificate]
    assert [record.message.partition(", valid")[0] for record in caplog.records] == [
        "new connections get the new certificate"
    ]


def test_a_pair_that_is_half_written_is_waited_for(renewing: Renewing, caplog: pytest.LogCaptureFixture) -> None:
    new = make_pair()
    renewing.write(new.certificate)
    renewing.renewal.check()
    renewing.write(new.certificate, new.key)
    renewing.renewal.check()
    assert renewing.got == [new.certificate]
    assert not caplog.records


def test_a_pair_that_will_not_do_is_refused_with_one_line(
    renewing: Renewing, caplog: pytest.LogCaptureFixture
) -> None:
    renewing.write(make_pair().certificate)
    for _ in range(4):
        renewing.renewal.check()
    assert renewing.got == []
    assert [record.message for record in caplog.records] == [
        "new files of TLS are not used, and the old ones stay in use: "
        f"--tls-key {renewing.paths[1]}: it is not the key of the certificate"
    ]


def test_a_file_that_goes_away_and_comes_back_changes_nothing(renewing: Renewing) -> None:
    Path(renewing.paths[1]).unlink()
    for _ in range(3):
        renewing.renewal.check()
    renewing.write(localhost().certificate, localhost().key)
    renewing.renewal.check()
    assert renewing.got == []


def _reported(renewing: Renewing, caplog: pytest.LogCaptureFixture, now: datetime) -> list[tuple[str, str]]:
    caplog.clear()
    renewing.renewal.report_expiry(now)
    return [(record.levelname, record.message) for record in caplog.records]


@pytest.mark.parametrize(
    ("days", "left", "lifetime"),
    [(0.1, "2 hours", "9 hours"), (29.9, "29 days", "90 days"), (100, "99 days", "400")],
)
def test_a_certificate_warns_from_a_third_of_its_lifetime_on_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: float, left: str, lifetime: str
) -> None:
    whole = {0.1: 0.4, 29.9: 90.0, 100: 400.0}[days]
    renewing = Renewing(tmp_path, make_pair(days=days, since_days=whole - days))
    now = datetime.now(UTC)
    [(level, said)] = _reported(renewing, caplog, now)
    assert level == "WARNING"
    assert f" UTC, in {left}: less than a third of its {lifetime}" in said
    assert _reported(renewing, caplog, now + timedelta(hours=23) if days > 1 else now) == []
    if days > 1:
        assert [level for level, _ in _reported(renewing, caplog, now + timedelta(days=1))] == ["WARNING"]
    [(level, said)] = _reported(renewing, caplog, now + timedelta(days=days))
    assert (level, said.partition(" at ")[0]) == ("ERROR", "the TLS certificate has expired")


def test_a_certificate_with_more_than_a_third_left_does_not_warn_and_a_renewed_one_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewing, now = Renewing(tmp_path, make_pair(days=31, since_days=59)), datetime.now(UTC)
    assert _reported(renewing, caplog, now) == []
    soon = make_pair(days=5, since_days=85)
    renewing.write(soon.certificate, soon.key)
    renewing.renewal.check_now()
    assert len(_reported(renewing, caplog, now)) == 1
    sooner = make_pair(days=4, since_days=86)
    renewing.write(sooner.certificate, sooner.key)
    renewing.renewal.check_now()
    assert len(_reported(renewing, caplog, now)) == 1  # of another certificate


# --- a broker --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(clone: Callable[[], Any], directory: Path) -> Iterator[BrokerProcess]:
    """Two processes."""
    certificate, key = localhost().write(directory, "port")
    shutil.copy(certificate, directory / "first.pem")
    with clone() as url:
        broker = BrokerProcess(
            "--database-url", url, "--port", "0", "--workers", "2", "--cleartext-port", str(_free_port()),
            "--tls-certificate", certificate, "--tls-key", key,
        ).wait_until_ready()  # fmt: skip
        try:
            yield broker
        finally:
            code = broker.stop()
        assert code == 0
        assert faults(broker) == []


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _said(broker: BrokerProcess, words: str) -> str:
    """The line with these words, which follow "Ready: "."""
    deadline = time.monotonic() + 20
    while not (lines := [line for line in broker.log if words in line]):
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.02)
    return lines[0]


def test_what_it_says_at_the_start_is_what_clients_need(broker: BrokerProcess, directory: Path) -> None:
    assert broker.url.startswith("https://127.0.0.1:")
    assert _said(broker, f"export GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={directory}/port.pem")
    assert _said(broker, f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB={broker.url}/")


def test_the_port_beside_it_speaks_no_tls(broker: BrokerProcess) -> None:
    line = _said(broker, "Without TLS: ")
    assert httpx.get(f"{line.partition('TLS: ')[2]}/readyz").status_code == 200
    refused = httpx.get(broker.url.replace("https:", "http:"))
    assert refused.status_code == 400
    assert "speaks TLS" in refused.json()["error"]["message"]


def test_discovery_names_the_keys_over_tls_whatever_host_a_request_names(broker: BrokerProcess) -> None:
    where = f"{broker.url}/.well-known/openid-configuration"
    response = httpx.get(where, headers={"Host": "localhost:1"}, verify=trusting())
    assert response.json()["issuer"] == broker.url
    assert response.json()["jwks_uri"] == f"{broker.url}/.well-known/jwks.json"
    assert response.headers["Cache-Control"] == "no-store"


_GOOGLE = """
import sys, threading
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherClient

address = sys.argv[1]
options = {"credentials": AnonymousCredentials(), "client_options": {"api_endpoint": address}}
publisher, subscriber = pubsub_v1.PublisherClient(**options), pubsub_v1.SubscriberClient(**options)
topic, subscription = "projects/over-tls/topics/topic", "projects/over-tls/subscriptions/subscription"
publisher.create_topic(name=topic)
subscriber.create_subscription(name=subscription, topic=topic)
received, done = set(), threading.Event()

def handle(message):
    received.add(message.data)
    message.ack()
    if len(received) == 6:
        done.set()

stream = subscriber.subscribe(subscription, handle)
for number in range(5):
    publisher.publish(topic, b"%d" % number).result(30)
rest = PublisherClient(transport="rest", **options)
rest.publish(topic=topic, messages=[{"data": b"over REST"}])
assert done.wait(30), received
stream.cancel()
"""


def test_google_s_client_publishes_and_streams_with_a_variable_for_the_authority(
    broker: BrokerProcess, directory: Path
) -> None:
    authority = str(directory / "first.pem")
    done = subprocess.run(
        [sys.executable, "-c", _GOOGLE, broker.url.removeprefix("https://").replace("127.0.0.1", "localhost")],
        env=os.environ | {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": authority, "REQUESTS_CA_BUNDLE": authority},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_gets_rest_although_it_offers_http2(broker: BrokerProcess, directory: Path) -> None:
    done = subprocess.run(
        [
            "curl",
            "-s",
            "--http2",
            "--cacert",
            directory / "first.pem",
            "-w",
            " %{http_version}",
            f"{broker.url}/healthz",
        ],
        capture_output=True,
        text=True,
    )
    assert done.stdout == '{"status":"ok"} 1.1'


async def test_new_files_are_used_at_sighup_by_every_process_and_no_connection_is_dropped(
    broker: BrokerProcess, directory: Path
) -> None:
    """The last test of the module: it changes the broker's certificate."""
    async with httpx.AsyncClient(base_url=broker.url, verify=trusting(), timeout=60) as kept:
        assert (await kept.get("/healthz")).status_code == 200
        new = make_pair(days=200)
        new.write(directory, "port")
        broker.process.send_signal(signal.SIGHUP)
        await eventually(lambda: any("new connections get the new certificate" in line for line in broker.log))
        context = trusting(new.certificate)
        await _until_all_show(broker, context)
        validity = read_validity(new.certificate)
        scraped = Scraped((await kept.get("/metrics")).text)
        assert scraped.get("broker_tls_certificate_not_after_timestamp_seconds") == validity.ends.timestamp()
        assert scraped.get("broker_tls_certificate_not_before_timestamp_seconds") == validity.begins.timestamp()
        answer = await kept.get("/healthz")  # on its old connection: a new one would not be trusted
        assert answer.status_code == 200
    assert broker.process.poll() is None


async def _until_all_show(broker: BrokerProcess, context: ssl.SSLContext) -> None:
    """Processes hear of it one after the other; which of them accepts is the kernel's choice."""
    in_a_row = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while in_a_row < 20:
            try:
                async with httpx.AsyncClient(base_url=broker.url, verify=context) as client:
                    await client.get("/healthz")
                in_a_row += 1
            except httpx.ConnectError:
                in_a_row = 0
