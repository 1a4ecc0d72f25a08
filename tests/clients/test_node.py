"""Google's Node client, unchanged, over gRPC (D2): tests/clients/node/story.js, where node and npm are."""

import json
import shutil
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.clients.programs import INSTALL_SECONDS, NODE_PROGRAMS, run_program
from tests.fixtures.broker import Json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH"),
]


@pytest.fixture(scope="module")
def story(node_client: Path, broker_url: str) -> Json:
    """What the script saw, with nothing but PUBSUB_EMULATOR_HOST set."""
    environment = {"PUBSUB_EMULATOR_HOST": urlsplit(broker_url).netloc}
    script = shutil.copy(NODE_PROGRAMS / "story.js", node_client)
    done = run_program(["node", script, f"node-{uuid.uuid4().hex[:10]}"], node_client, environment, 100)
    assert done.returncode == 0, done.stderr
    seen: Json = json.loads(done.stdout)
    return seen


@pytest.mark.timeout(INSTALL_SECONDS + 120)
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
