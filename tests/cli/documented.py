"""The commands in the shell blocks of documentation pages, and a directory in which they are run as they stand."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.broker import BrokerProcess, repository

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*broker ")


def commands(page: Path) -> list[str]:
    """The lines of a page that run `broker`, with their continuation lines."""
    blocks = "".join(_BLOCK.findall(page.read_text(encoding="utf-8"))).replace("\\\n", "")
    return [line.strip() for line in blocks.splitlines() if _COMMAND.match(line.strip())]


def pages() -> Iterator[Path]:
    yield repository() / "README.md"
    yield from sorted((repository() / "docs").glob("*.md"))


@dataclass
class Desk:
    """A directory with the files that commands of a page read, and what stands there for the page's own places."""

    directory: Path
    start: Callable[..., BrokerProcess]
    environment: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # "/etc/broker", "$ID": what stands for it here

    def run(self, line: str) -> None:
        """A command as the page has it; one that serves is only started, and stopped once it is ready."""
        line = self._here(line)
        words = shlex.split(line, comments=True)
        if words[words.index("broker") + 1] == "serve":
            assert self.serve(line).stop() == 0
            return
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.directory,
            env=self._environment() | {"PATH": path},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    def serve(self, line: str) -> BrokerProcess:
        """The broker of a `broker serve` line, once it is ready."""
        words = shlex.split(self._here(line), comments=True)
        at = words.index("broker")
        own = dict(word.split("=", 1) for word in words[:at])
        environment = self._environment() | {"BROKER_PORT": "0"} | own
        return self.start(*words[at + 2 :], env=environment, cwd=self.directory)

    def _here(self, line: str) -> str:
        for place, here in self.places.items():
            line = line.replace(place, here)
        return line

    def _environment(self) -> dict[str, str]:
        inherited: Mapping[str, str] = os.environ
        ours = ("BROKER_", "PUBSUB_", "DATABASE_URL", "GOOGLE_", "XDG_")
        kept = {name: value for name, value in inherited.items() if not name.startswith(ours)}
        home = str(self.directory / "home")
        return kept | {"HOME": home} | self.environment
