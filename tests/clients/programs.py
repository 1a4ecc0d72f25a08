"""Programs of other people's clients, in processes of their own."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

NODE_PROGRAMS = repository() / "tests/clients/node"
INSTALL_SECONDS = 180


def run_program(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def install_node_client(directory: Path) -> None:
    """Google's, unless it is there; skips the test where npm cannot."""
    wanted = (NODE_PROGRAMS / "package.json").read_bytes()
    installed = directory / "installed.json"  # written last
    if installed.exists() and installed.read_bytes() == wanted:
        return
    shutil.copy(NODE_PROGRAMS / "package.json", directory)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    try:
        done = run_program(command, directory, {"npm_config_fetch_retries": "1"}, INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the client within {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm cannot install the client: {' / '.join(done.stderr.split(os.linesep)[:3])}")
    installed.write_bytes(wanted)
