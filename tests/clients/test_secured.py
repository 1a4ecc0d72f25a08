"""Google's clients and gcloud where authentication is required, over TLS: endpoint and key file do (E1, E3)."""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.programs import INSTALL_SECONDS, NODE_PROGRAMS, run_program
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.tls import make_pair

pytestmark = [pytest.mark.slow, pytest.mark.ci]

SECONDS = 150
_ACCOUNT = "worker@shop.iam.broker.internal"


@dataclass(frozen=True)
class Secured:
    """A broker with TLS, of an authority of its own, and the key of its administrator."""

    endpoint: str
    key_file: Path
    environment: Mapping[str, str]
    directory: Path


@pytest.fixture
def secured(data_dir: Path, start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> Secured:
    authority = make_pair([], is_authority=True)
    ca, _ = authority.write(tmp_path, "authority")
    certificate, key = make_pair(issuer=authority).write(tmp_path, "server")
    tls = ("--tls-certificate", certificate, "--tls-key", key)
    broker = start_broker("--auth", "required", *tls, "--data-dir", str(data_dir), "--port", "0")
    key_file = data_dir / "admin-key.json"
    port = broker.url.rpartition(":")[2]
    environment = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(key_file),
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": ca,  # Google's libraries over gRPC
        "REQUESTS_CA_BUNDLE": ca,  # over REST, and what asks for tokens
        "NODE_EXTRA_CA_CERTS": ca,
    }
    return Secured(f"localhost:{port}", key_file, environment, tmp_path)


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_googles_python_client_needs_an_endpoint_and_a_key_file(secured: Secured, transport: str) -> None:
    program = Path(__file__).with_name("secured.py")
    command = [sys.executable, program, secured.endpoint, transport, "shop"]
    done = run_program(command, secured.directory, secured.environment, SECONDS)
    assert done.stdout == "hello\n", done.stderr


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH")
@pytest.mark.timeout(INSTALL_SECONDS + SECONDS)
def test_googles_node_client_needs_an_endpoint_and_a_key_file(secured: Secured, node_client: Path) -> None:
    program = shutil.copy(NODE_PROGRAMS / "secured.js", node_client)
    done = run_program(["node", program, secured.endpoint, "shop"], node_client, secured.environment, SECONDS)
    assert done.stdout == "hello\n", done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not on PATH")
@pytest.mark.timeout(600)
def test_gcloud_makes_accounts_and_keys_gives_roles_and_publishes(secured: Secured) -> None:
    url = f"https://{secured.endpoint}/"
    environment = {
        **secured.environment,
        "CLOUDSDK_CONFIG": str(secured.directory / "gcloud"),
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": secured.environment["REQUESTS_CA_BUNDLE"],
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_PROJECT": "shop",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": url,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM": url,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER": url,
    }

    def gcloud(*arguments: str) -> str:
        done = run_program(["gcloud", *arguments], secured.directory, environment, SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    member = ("--member", f"serviceAccount:{_ACCOUNT}")
    gcloud("auth", "activate-service-account", "--key-file", str(secured.key_file))
    gcloud("pubsub", "topics", "create", "orders")
    gcloud("iam", "service-accounts", "create", "worker")
    key = secured.directory / "worker.json"
    gcloud("iam", "service-accounts", "keys", "create", str(key), "--iam-account", _ACCOUNT)
    gcloud("projects", "add-iam-policy-binding", "shop", *member, "--role", "roles/pubsub.viewer")
    gcloud("iam", "roles", "create", "poster", "--project", "shop", "--permissions", "pubsub.topics.publish")
    role = "projects/shop/roles/poster"
    gcloud("pubsub", "topics", "add-iam-policy-binding", "orders", *member, "--role", role)
    gcloud("auth", "activate-service-account", "--key-file", str(key))
    assert "messageIds" in gcloud("pubsub", "topics", "publish", "orders", "--message", "hello")
    assert "orders" in gcloud("pubsub", "topics", "list")
    refused = run_program(
        ["gcloud", "pubsub", "topics", "delete", "orders"], secured.directory, environment, SECONDS
    )
    assert refused.returncode != 0
    assert "pubsub.topics.delete" in refused.stderr
