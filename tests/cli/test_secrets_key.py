"""Where the keys of secrets are, and what a start says of them."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import complaint, faults, run_broker
from tests.fixtures.broker import BrokerProcess

StartBroker = Callable[..., BrokerProcess]


@pytest.mark.slow
def test_an_embedded_database_has_its_key_in_its_directory_and_it_is_rotated_while_the_broker_runs(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    file = data_dir / "secrets.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text()
    rotated = run_broker("secrets", "rotate", "--data-dir", str(data_dir))
    assert rotated.returncode == 0, rotated.stderr
    assert "1 secret is encrypted with the key " in rotated.stdout
    assert file.read_text().splitlines()[1:] == key.splitlines()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    broker.stop()
    again = start_broker("--data-dir", str(data_dir), "--port", "0")
    assert file.read_text().splitlines()[1:] == key.splitlines(), "a start leaves it as it is"
    again.stop()
    assert not faults(broker) + faults(again)
    assert key.strip() not in "\n".join(broker.log + again.log) + rotated.stdout + rotated.stderr


def test_a_database_of_ones_own_is_served_without_a_key_and_a_warning_names_the_setting(
    database_url: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    [line] = [line for line in broker.log if "secrets are in clear text in the database" in line]
    assert "WARNING" in line
    assert "--secrets-key-file" in line
    absent = tmp_path / "absent.key"
    options = ("--database-url", database_url, "--secrets-key-file", str(absent))
    assert complaint("serve", *options, code=2).endswith(f"not '{absent}': No such file or directory")
    assert "--secrets-key-file" in complaint("secrets", "rotate", "--database-url", database_url, code=2)
