"""`--auth required`: the first key, and where the broker does not start."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.api_core.client_options import ClientOptions
from google.cloud import pubsub_v1
from google.oauth2 import service_account

from tests.cli.processes import run_broker
from tests.fixtures.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


def _is_let_in(key_file: Path, url: str) -> bool:
    """Whether Google's library may list topics, with the key file and the endpoint alone."""
    credentials = service_account.Credentials.from_service_account_file(str(key_file))
    options = ClientOptions(api_endpoint=url)
    with pubsub_v1.PublisherClient(credentials=credentials, transport="rest", client_options=options) as client:
        return list(client.list_topics(project="projects/shop")) == []


def test_on_a_database_of_ones_own_nobody_is_let_in_before_there_is_a_key(
    database_url: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    required = ("--auth", "required", "--database-url", database_url, "--port", "0")
    refused = run_broker("serve", *required)
    assert refused.returncode == 1
    assert "run `broker auth bootstrap --key-file FILE` first" in refused.stderr
    file = tmp_path / "first.json"
    made = run_broker("auth", "bootstrap", "--key-file", str(file), "--database-url", database_url)
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key: Any = json.loads(file.read_text())
    assert key["client_email"] == "broker-admin@broker-system.iam.broker.internal"
    assert key["token_uri"] == "http://127.0.0.1:8085/token"
    again = run_broker("auth", "bootstrap", "--key-file", str(file), "--database-url", database_url)
    assert again.returncode == 2
    assert json.loads(file.read_text()) == key
    broker = start_broker(*required)
    assert _is_let_in(file, broker.url)


def test_an_embedded_database_has_its_first_key_in_its_directory(start_broker: StartBroker, data_dir: Path) -> None:
    broker = start_broker("--auth", "required", "--data-dir", str(data_dir), "--port", "0")
    file = data_dir / "admin-key.json"
    assert f"The key of the administrator, who may do everything, is in {file}" in broker.log
    assert f"    Console: {broker.url}/console/ (`broker console` opens it signed in)" in broker.log
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in "\n".join(broker.log)
    assert _is_let_in(file, broker.url)


def test_credentials_are_not_taken_in_cleartext_from_other_machines_unless_that_is_said(
    database_url: str, tmp_path: Path
) -> None:
    open_to_all = ("--host", "0.0.0.0", "--port", "0", "--auth", "required", "--database-url", database_url)
    refused = run_broker("serve", *open_to_all)
    assert refused.returncode == 2
    assert "--insecure-transport" in refused.stderr
    allowed = run_broker("serve", *open_to_all, "--insecure-transport")  # it goes on to ask for a key
    assert allowed.returncode == 1
    assert "broker auth bootstrap" in allowed.stderr
