"""The empty handler that single publishes are measured against."""

import subprocess
import sys

import httpx


def test_the_empty_server_answers_behind_the_brokers_http_server() -> None:
    command = [sys.executable, "-m", "benchmarks.empty_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("Ready: ").strip()
            answer = httpx.post(f"{url}/v1/projects/p/topics/t:publish", content=b"{}", timeout=20)
            assert (answer.status_code, answer.json()) == (200, {})
        finally:
            process.terminate()
