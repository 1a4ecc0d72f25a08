"""Java's Avro, which Google's emulator checks messages by, beside ours (decision 0072)."""

from base64 import b64encode
from collections.abc import Iterator

import httpx
import pytest

from benchmarks.servers import Emulator, find_emulator
from tests.fixtures.avro_cases import DEFINITIONS, JAVA_ACCEPTS, JAVA_REFUSES, MESSAGES, Case
from tests.fixtures.broker import NO_TLS

pytestmark = [pytest.mark.slow, pytest.mark.ci]


@pytest.fixture(scope="module")
def emulator() -> Iterator[httpx.Client]:
    """Google's emulator, where it is installed."""
    jar = find_emulator()
    if jar is None:
        pytest.skip("Google's emulator is not installed")
    server = Emulator(jar, "256m")
    server.start()
    try:
        with httpx.Client(
            base_url=f"http://{server.host}:{server.port}/v1/projects/p/", timeout=60, verify=NO_TLS
        ) as client:
            yield client
    finally:
        server.stop()


def _accepts(client: httpx.Client, case: Case) -> bool:
    schema = {"schema": {"type": "AVRO", "definition": case.definition}}
    message = {"message": b64encode(case.data).decode(), "encoding": case.encoding} if case.encoding else {}
    answer = client.post("/schemas:validateMessage" if message else "/schemas:validate", json=schema | message)
    assert answer.status_code in (200, 400), answer.text
    return answer.status_code == 200


def test_java_decides_as_we_do_but_where_the_specification_says_otherwise(emulator: httpx.Client) -> None:
    accepts, refuses = set(), set()
    for case in (*DEFINITIONS, *MESSAGES):
        java = _accepts(emulator, case)
        if java and not case.right:
            accepts.add(case.key)
        if not java and case.right:
            refuses.add(case.key)
    assert (accepts, refuses) == (JAVA_ACCEPTS, JAVA_REFUSES)
