"""The image's steps make a broker that runs without root, on a root that cannot be written to (L3)."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
import pytest

from broker.app.settings.fields import NAMES, PREFIX
from tests.deployment import containerfile
from tests.deployment.containerfile import Stage
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, repository

CONTAINER = repository() / "deploy" / "container"
MOST_MB = 500  # of the image: Debian, Python, the embedded PostgreSQL, protoc and what the broker imports
IN_IMAGE = ("etc", "opt", "usr")  # what debootstrap leaves in /var no base image has


def _stages() -> list[Stage]:
    return containerfile.read_stages(CONTAINER / "Containerfile")


def test_the_image_is_not_roots_and_sets_what_are_settings() -> None:
    *_, image = _stages()
    assert image.user == "10001:10001"  # numbers, by which Kubernetes knows that it is not root
    for name in image.environment:
        assert not name.startswith(PREFIX) or name.removeprefix(PREFIX).lower() in NAMES, name
    assert (image.commands["ENTRYPOINT"], image.commands["CMD"]) == (["broker"], ["serve"])
    assert {stage.base for stage in _stages()} == {"debian:bookworm-slim"}


def test_what_the_build_needs_is_let_into_it() -> None:
    rules = (CONTAINER / "Containerfile.dockerignore").read_text().splitlines()
    for rule in rules:
        assert not rule.startswith("!") or (repository() / rule[1:]).exists(), rule


def _debootstrap(directory: Path) -> tuple[Sequence[str | Path], dict[str, str]]:
    """The program, and what its environment needs; installed, or fetched for this test alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can chroot")
    if found := shutil.which("debootstrap"):
        return [found], {}
    if shutil.which("apt-get") is None or shutil.which("unshare") is None:
        pytest.skip("there is no debootstrap, and no apt-get to fetch it by")
    got = subprocess.run(["apt-get", "download", "debootstrap"], cwd=directory, capture_output=True, check=False)
    if got.returncode:
        pytest.skip("debootstrap cannot be fetched: no network?")
    [package] = directory.glob("debootstrap*.deb")
    subprocess.run(["dpkg", "-x", package, directory / "program"], check=True)
    usr = directory / "program" / "usr"
    return [usr / "sbin" / "debootstrap"], {"DEBOOTSTRAP_DIR": str(usr / "share" / "debootstrap")}


def _megabytes(root: Path) -> float:
    done = subprocess.run(["du", "-sxk", *(root / name for name in IN_IMAGE)], capture_output=True, check=True)
    return sum(int(line.split()[0]) for line in done.stdout.splitlines()) / 1024


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_make_a_broker_in_a_minimal_debian(tmp_path: Path) -> None:
    program, environment = _debootstrap(tmp_path)
    bare, stages = tmp_path / "bare", _stages()
    containerfile.make_root(program, "bookworm", bare, environment)
    root, image, volume = containerfile.build(stages, bare, repository(), tmp_path), stages[-1], tmp_path / "volume"
    volume.mkdir(mode=0o700)
    os.chown(volume, 10001, 10001)
    port = _free_port()
    here = {"BROKER_PORT": str(port), "BROKER_METRICS_PORT": str(_free_port())}
    healthy = [part.replace("8085", str(port)) for part in image.commands["HEALTHCHECK"]]
    check = ["chroot", f"--userspec={image.user}", str(root), *healthy]
    broker = BrokerProcess(program=containerfile.started(root, image, volume, here)).wait_until_ready()
    try:
        asyncio.run(_deliver(port))
        assert {os.stat(f"/proc/{process.pid}").st_uid for process in _below(broker)} == {10001}
        assert subprocess.run(check, check=False).returncode == 0
    finally:
        _below(broker)[0].terminate()
        assert broker.process.wait(30) == 0, broker.log
        broker.stop()
    assert broker.log[-1] == "Stopped."
    assert subprocess.run(check, check=False, capture_output=True).returncode != 0
    assert not (root / "opt" / "broker" / "bin" / "pip").exists()
    assert _megabytes(root) < MOST_MB
    shutil.rmtree(tmp_path, ignore_errors=True)  # gigabytes


async def _deliver(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/contained")
        await rest.create_topic()
        await rest.create_subscription()
        published = await rest.publish("hello")
        assert [m["message"]["messageId"] for m in await rest.drain()] == published


def _below(broker: BrokerProcess) -> list[psutil.Process]:
    """What runs in the container."""
    return psutil.Process(broker.process.pid).children(recursive=True)
