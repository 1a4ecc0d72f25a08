"""The commands of the README and of docs/first-steps.md, typed into a shell in a new clone, in their order.

Two things differ from a reader's machine: packages come from this environment instead of `pip install`, and ports
are free ones instead of 8085 and 9000.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(400)]  # many programs are started

CLONED = "git clone <this repository> broker && cd broker\n"
# The blocks that end by themselves, in the order of the pages: a word of each, and what it prints (a pattern).
README = (
    ("broker pull billing", r"one order"),
    (":acknowledge", r'"messageIds": ?\["\d+"\](?s:.*)"data": ?"aGVsbG8="'),
    ("first_message.py", r"published (\d+)\nreceived \1 b'hello' \{'lang': 'en'\}"),
)
FIRST_STEPS = (
    ("gcloud pubsub", r"one invoice"),
    ("pip install", r""),
    ("topics/greetings:publish", r'"messageIds": ?\["\d+"\]'),
    ("subscriptions/webhook", r'"messageIds": ?\["\d+"\]'),
    ("broker push status", r"ACTIVE"),
)
RECEIVED = r"received \d+ b'hello' \{'lang': 'en'\}"


def _blocks(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (repository() / page).read_text("utf-8"), re.DOTALL)


@dataclass
class Terminal:
    """A shell that gets commands and returns what they print."""

    directory: Path
    variables: Mapping[str, str]
    replaced: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            ["sh", "-e"],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory.parent), **self.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def start(self, commands: str) -> None:
        assert self.process.stdin is not None
        for written, here in self.replaced.items():
            commands = commands.replace(written, here)
        self.process.stdin.write(commands)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def until(self, pattern: str) -> str:
        """Returns what is printed up to a line with the pattern."""
        printed = ""
        while not re.search(pattern, printed.rpartition("\n")[0].rpartition("\n")[2]):
            line = self.line()
            assert line, f"the shell ended before {pattern!r}:\n{printed}"
            printed += line
        return printed

    def run(self, commands: str) -> str:
        """Returns what the commands print.  Fails if one of them fails."""
        self.start(f"{commands}\necho; echo ended\n")
        return self.until("^ended$")

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.read()  # until all of its programs have ended
        self.process.stdout.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the packages of `.venv` and `.venv-examples` are those of this environment."""
    directory = tmp_path_factory.mktemp("newcomer") / "broker"
    subprocess.run(["git", "clone", "--quiet", "--shared", repository(), directory], check=True)
    programs = directory / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, command in (("broker", "-m broker"), ("python", ""), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    (directory / ".venv" / ".run").touch()  # make finds everything installed
    (directory.parent / ".curlrc").write_text("silent\nshow-error\n")  # as on a terminal
    packages = Path(".venv-examples", "lib", f"python3.{sys.version_info.minor}", "site-packages")
    (directory / packages).mkdir(parents=True)
    paths = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (directory / packages / "installed.pth").write_text("\n".join(sorted(paths)))
    return directory


@pytest.fixture(scope="module")
def address(clone: Path) -> Iterator[str]:
    """Where the broker of the README's first block listens."""
    [first] = [block for block in _blocks("README.md") if "make run" in block]
    assert first.startswith(CLONED)
    terminal = Terminal(clone, {})
    terminal.start(re.sub(r"make run +#.*", 'make run ARGS="--port 0"', first.removeprefix(CLONED)))
    ready = terminal.until("^Ready: ").splitlines()[-1]
    yield ready.removeprefix("Ready: http://")
    terminal.end()


@pytest.fixture
def terminal(clone: Path, address: str) -> Iterator[Terminal]:
    quiet = {"CLOUDSDK_CONFIG": str(clone.parent / "gcloud"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    # `broker` finds port 8085 without being told.
    opened = Terminal(clone, {**quiet, "BROKER_URL": f"http://{address}", "PATH": _path()})
    opened.replaced = {"127.0.0.1:8085": address, ".venv-examples/bin/pip install": ": pip install"}
    yield opened
    opened.end()


def _path() -> str:
    """`python3` of this environment first, as the newcomer has one version of it."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_the_commands_of_the_readme_do_what_it_says(terminal: Terminal) -> None:
    blocks = [block for block in _blocks("README.md") if not re.search(r"^make ", block, re.MULTILINE)]
    assert len(blocks) == len(README)
    for block, (word, printed) in zip(blocks, README, strict=True):
        assert word in block
        before, acknowledged, after = block.partition("curl -X POST $URL/subscriptions/worker:acknowledge")
        said = terminal.run(before)
        if acknowledged:
            [ack_id] = re.findall(r'"ackId": ?"([^"]+)"', said)
            assert terminal.run((acknowledged + after).replace("…", ack_id)).split() == ["{}", "ended"]
        assert "error" not in said.lower()
        assert re.search(printed, said), said


@pytest.fixture
def others() -> Iterator[list[Terminal]]:
    """Terminals whose programs go on until Ctrl-C."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.end()


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not on PATH")
def test_the_first_steps_do_what_they_say(
    clone: Path, address: str, terminal: Terminal, others: list[Terminal]
) -> None:
    expected = iter(FIRST_STEPS)
    for block in _blocks("docs/first-steps.md"):
        if block.count("\n") == 1 and "examples/" in block:  # goes on until Ctrl-C
            others.append(Terminal(clone, {"PUBSUB_EMULATOR_HOST": address, "PATH": _path()}))
            others[-1].start(block.replace("webhook.py", "webhook.py 0"))
            listening = re.search(r"listening on (?:http://([\w.:]+))?", others[-1].line())
            assert listening
            if listening[1]:
                terminal.replaced["127.0.0.1:9000"] = listening[1]
            continue
        word, printed = next(expected)
        assert word in block
        said = terminal.run(block)
        assert "error" not in said.lower()
        assert re.search(printed, said), said
        if "greetings:publish" in block:
            assert re.fullmatch(RECEIVED, others[-1].line().strip())
    assert next(expected, None) is None


def test_the_client_is_not_installed_into_the_environment_of_the_broker() -> None:
    for page in ("README.md", "docs/first-steps.md", "examples/README.md"):
        installs = re.findall(
            r"^.*\bpip install.*google-cloud-pubsub", (repository() / page).read_text("utf-8"), re.M
        )
        assert installs, page
        assert all(line.startswith(".venv-examples/bin/pip ") for line in installs)


def test_what_the_readme_says_of_working_on_it_is_what_ci_runs() -> None:
    [commands] = [block for block in _blocks("README.md") if "make test" in block]
    run_by_ci = (repository() / ".ci" / "run").read_text().splitlines()
    assert {line.partition(" #")[0].rstrip() for line in commands.splitlines()} <= set(run_by_ci)
