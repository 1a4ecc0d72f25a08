"""The commands in the shell blocks of the documentation are run word by word, and succeed.

Each page is a test: it has a directory with the files that the page speaks of, and a broker or a database.
"""

import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes, token_hex

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.cli.documented import Desk, commands, pages
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, message, repository
from tests.fixtures.tls import make_pair

DOCS = repository() / "docs"
StartBroker = Callable[..., BrokerProcess]

# Run by other tests, or by nobody; by how lines begin.
ELSEWHERE = {
    "broker serve --database-url 'postgresql://broker@": "needs several database servers: tests/citus",
    "broker serve --database-url postgresql://…": "names no database",
    "broker purge billing --expected-count 1200": "is refused unless so many wait: tests/features/previews",
    "broker message decode 1000000000000042": "needs a schema: tests/features/schemas/test_decoding.py",
    "broker lag --project demo": "asks the broker that the page has just started, as many tests do",
}
# tests/clients/test_first_steps.py runs those of two pages, tests/cli/client/test_runbooks.py those of the third.
ELSEWHERE_WHOLE = ("README.md", "first-steps.md", "runbooks.md")
PAGES = (
    "command-line.md",
    "console.md",
    "declarations.md",
    "deployment.md",
    "metrics.md",
    "moving-to-your-own-database.md",
    "operations.md",
    "security.md",
    "your-own-transaction.md",
)


def test_each_command_of_the_documentation_is_run() -> None:
    others = [page for page in pages() if page.name not in (*PAGES, *ELSEWHERE_WHOLE)]
    assert [line for page in others for line in commands(page) if not line.startswith(tuple(ELSEWHERE))] == []
    lines = [line for page in pages() for line in commands(page)]
    assert [begin for begin in ELSEWHERE if not any(line.startswith(begin) for line in lines)] == []
    assert [page for page in PAGES if not commands(DOCS / page)] == []


@pytest.fixture
def desk(start_broker: StartBroker, tmp_path: Path) -> Desk:
    return Desk(tmp_path, start_broker)


@pytest.fixture
def shop(desk: Desk, start_broker: StartBroker, tmp_path: Path) -> Desk:
    """Beside a broker with a project of the names that pages use."""
    broker = start_broker("--data-dir", str(tmp_path / "broker"), "--port", "0", "--allow-reset")
    _furnish(f"{broker.url}/v1/projects/shop")
    desk.environment |= {"BROKER_URL": broker.url, "BROKER_PROJECT": "shop"}
    desk.places |= {"https://broker.example.com": broker.url}
    return desk


def _run_page(desk: Desk, name: str) -> None:
    for line in commands(DOCS / name):
        if not line.startswith(tuple(ELSEWHERE)):
            desk.run(line)


def _call(method: str, url: str, body: Json | None = None) -> Json:
    answer = httpx.request(method, url, json=body, verify=NO_TLS, timeout=60)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def _furnish(url: str) -> None:
    for topic, extensions in (("orders", {}), ("failed", {}), ("replay", {}), ("prices", {"expiry": True})):
        _call("PUT", f"{url}/topics/{topic}", {"extensions": extensions, "messageRetentionDuration": "600s"})
    policy = {"deadLetterTopic": f"{url.partition('/v1/')[2]}/topics/failed"}
    topic = f"{url.partition('/v1/')[2]}/topics/orders"
    _call("PUT", f"{url}/subscriptions/billing", {"topic": topic, "deadLetterPolicy": policy})
    _call("PUT", f"{url}/subscriptions/worker", {"topic": topic})
    _call("POST", f"{url}/topics/orders:publish", {"messages": [message("an order", {"test": "yes"})]})


def _dead_letter(url: str) -> str:
    """The id of a message that billing gives up for this."""
    billing = f"{url}/subscriptions/billing"
    received = _call("POST", f"{billing}:pull", {"maxMessages": 1})["receivedMessages"]
    _call("POST", f"{billing}:reject", {"ackIds": [received[0]["ackId"]]})
    deadline = time.monotonic() + 60
    while not (dead_letters := _call("GET", f"{billing}/deadLetters").get("deadLetters")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    found: str = dead_letters[0]["sourceMessageId"]
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_the_command_line(shop: Desk) -> None:
    shop.places["$ID"] = _dead_letter(f"{shop.environment['BROKER_URL']}/v1/projects/shop")
    (shop.directory / "mended.json").write_text("{}")
    account = {"accountId": "billing", "serviceAccount": {}}
    _call("POST", f"{shop.environment['BROKER_URL']}/v1/projects/shop/serviceAccounts", account)
    _run_page(shop, "command-line.md")
    _run_page(shop, "metrics.md")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_the_console(desk: Desk, start_broker: StartBroker, tmp_path: Path) -> None:
    data = tmp_path / "broker"
    broker = start_broker("--data-dir", str(data), "--port", "0", "--auth", "required")
    desk.environment |= {
        "BROKER_URL": broker.url,
        "BROKER_PROJECT": "shop",
        "BROKER_CREDENTIALS": str(data / "admin-key.json"),
    }
    desk.run("broker topic create orders")
    desk.run("broker sub create hook --topic orders --push-endpoint https://hooks.example.com/hook")
    _run_page(desk, "console.md")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_declarations(shop: Desk) -> None:
    page = (DOCS / "declarations.md").read_text(encoding="utf-8")
    declared = re.findall(r"(?<=```yaml\n).*?(?=```)", page, re.DOTALL)[0]
    (shop.directory / "shop.yaml").write_text(declared)
    for name in ("topics", "billing"):
        (shop.directory / f"{name}.yaml").write_text(f"topics: {{{name}: {{}}}}")
    shop.environment["BROKER_PROJECT"] = "declared"
    account = {"accountId": "billing", "serviceAccount": {}}
    _call("POST", f"{shop.environment['BROKER_URL']}/v1/projects/shop/serviceAccounts", account)
    _run_page(shop, "declarations.md")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_operations(shop: Desk, empty_database_url: str) -> None:
    make_pair().write(shop.directory, "cert")
    (shop.directory / "cert-key.pem").rename(shop.directory / "key.pem")
    shop.environment["BROKER_DATABASE_URL"] = empty_database_url
    orders = f"{shop.environment['BROKER_URL']}/v1/projects/shop/topics/orders"
    [message_id] = _call("POST", f"{orders}:publish", {"messages": [{"data": "YQ=="}]})["messageIds"]
    shop.places["1000000000000042"] = message_id
    _run_page(shop, "operations.md")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_security(desk: Desk) -> None:
    """The broker that the page starts is the one that its other commands call, over TLS and by its own key."""
    port = str(_free_port())
    certificate, _ = make_pair().write(desk.directory, "server")
    data = str(desk.directory / "data")
    desk.places |= {
        "broker.example.com": "127.0.0.1",
        "8443": port,
        "/var/lib/broker": data,
        "0.0.0.0": "127.0.0.1",
    }
    desk.environment |= {"BROKER_DATA_DIR": data, "SSL_CERT_FILE": certificate}
    serve, *rest = commands(DOCS / "security.md")
    desk.serve(serve)
    desk.environment["GOOGLE_APPLICATION_CREDENTIALS"] = f"{data}/admin-key.json"
    desk.run("broker topic create orders --project shop")
    for line in rest:
        desk.run(line)
    desk.environment["GOOGLE_APPLICATION_CREDENTIALS"] = "billing.json"
    desk.run("broker publish orders 'one order' --project shop")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["deployment.md", "moving-to-your-own-database.md", "your-own-transaction.md"])
def test_pages_about_databases(page: str, desk: Desk, data_dir: Path, empty_database_url: str) -> None:
    assert data_dir == desk.directory / "data"
    places = {"/var/lib/broker": str(data_dir), "/etc/broker": str(desk.directory)}
    desk.places |= {"$DATABASE_URL": empty_database_url, "$NEW": empty_database_url, **places}
    (desk.directory / "secrets.key").write_bytes(b64encode(token_bytes(32)))
    if page == "your-own-transaction.md":
        desk.run('broker migrate --database-url "$DATABASE_URL"')
        desk.places["shop_app"] = role = f"shop_app_{token_hex(4)}"
        with psycopg.connect(empty_database_url) as connection:
            connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
    _run_page(desk, page)
