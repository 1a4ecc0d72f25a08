"""Google's Node client, unchanged, over gRPC (D2): tests/clients/node/story.js, where node and npm are."""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fixtures.broker import Json, repository

_STORY = repository() / "tests/clients/node"
_INSTALL_SECONDS = 180

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH"),
]


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside an installed client, which pytest's cache, if it is on, keeps from one run to the next."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    directory = Path(cache.mkdir("node-client")) if cache else tmp_path_factory.mktemp("node-client")
    wanted = (_STORY / "package.json").read_bytes()
    installed = directory / "installed.json"  # written last
    if not installed.exists() or installed.read_bytes() != wanted:
        shutil.copy(_STORY / "package.json", directory)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        try:
            done = _run(command, directory, {"npm_config_fetch_retries": "1"}, _INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install the client within {_INSTALL_SECONDS} s")
        if done.returncode:
            pytest.skip(f"npm cannot install the client: {' / '.join(done.stderr.split(os.linesep)[:3])}")
        installed.write_bytes(wanted)
    return Path(shutil.copy(_STORY / "story.js", directory))


def _run(
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


@pytest.fixture(scope="module")
def story(script: Path, broker_url: str) -> Json:
    """What the script saw, with nothing but PUBSUB_EMULATOR_HOST set."""
    environment = {"PUBSUB_EMULATOR_HOST": urlsplit(broker_url).netloc}
    done = _run(["node", script, f"node-{uuid.uuid4().hex[:10]}"], script.parent, environment, 100)
    assert done.returncode == 0, done.stderr
    seen: Json = json.loads(done.stdout)
    return seen


@pytest.mark.timeout(_INSTALL_SECONDS + 120)
def test_the_node_client_creates_publishes_receives_seeks_and_deletes(story: Json) -> None:
    """D2, A1, A6, A7, A9, A12: a program of the Node client's usual calls ends with the results that Google's
    service gives.
    """
    seen = dict(story)
    assert seen.pop("most") <= 5  # of the flow control
    assert seen.pop("nackedSeconds") > 0
    assert seen == {
        "ids": 30,
        "missing": 5,  # NOT_FOUND
        "ordered": {f"key-{key}": [*range(key, 30, 3)] for key in range(3)},
        "nacked": {"texts": ["nacked", "nacked"], "ids": 1},
        "once": {"texts": ["once", "once"], "answers": ["SUCCESS"] * 4},
        "metadata": [30, {"team": "billing"}, {"team": "billing"}],
        "sought": [["kept"], ["before"], 30],
        "again": 6,  # ALREADY_EXISTS
        "detached": [True],
        "left": [False, 0],
    }


def test_what_the_node_client_nacks_at_once_comes_again_at_once(story: Json) -> None:
    """D2, A7: it collects what it says of deadlines, and sends the nack ahead of the receipt, which says 10 s."""
    assert story["nackedSeconds"] < 5
