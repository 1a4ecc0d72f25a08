"""The units in deploy/systemd/ are what systemd takes, and leave the broker little that it does not need (L3)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

UNITS = repository() / "deploy" / "systemd"
MOST_EXPOSED = 20  # of 100, as systemd counts
TARGETS = (
    "sysinit",
    "basic",
    "sockets",
    "multi-user",
    "shutdown",
    "network-online",
    "local-fs",
    "initrd-switch-root",
)

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


def _analyze(*arguments: str | Path) -> str:
    """What it complains of, or tells."""
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with the units, the program that they start, and the targets that systemd brings itself."""
    directory = tmp_path / "etc" / "systemd" / "system"
    directory.mkdir(parents=True)
    for target in TARGETS:
        (directory / f"{target}.target").write_text(f"[Unit]\nDescription={target}\nDefaultDependencies=no\n")
    for unit in UNITS.iterdir():
        shutil.copy(unit, directory)
    program = tmp_path / "opt" / "broker" / "bin" / "broker"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_a_unit_is_what_systemd_takes(root: Path, unit: str) -> None:
    found = _analyze(f"--root={root}", "verify", root / "etc" / "systemd" / "system" / unit)
    assert [line for line in found.splitlines() if "broker" in line] == []


def test_an_option_that_systemd_does_not_know_would_be_seen(root: Path) -> None:
    path = root / "etc" / "systemd" / "system" / "broker.service"
    path.write_text(path.read_text().replace("KillMode=", "KilMode="))
    assert "Unknown key" in _analyze(f"--root={root}", "verify", path)


@pytest.mark.parametrize("unit", ["broker.service", "broker-migrate.service"])
def test_a_service_can_do_little_that_it_need_not(unit: str) -> None:
    _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", UNITS / unit)
