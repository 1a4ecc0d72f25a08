"""A broker of the example's own, for what depends on how a broker is started.

It uses the interpreter that runs the example, so that needs the broker's package (`.venv/bin/python` in a clone).
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OwnBroker:
    """A running broker, with an empty embedded database in `data_dir`."""

    url: str
    data_dir: Path

    def run(self, *command: str) -> None:
        """Runs one of the commands that work on the database itself, such as `sql grant`."""
        command_line = [*_BROKER, *command, "--data-dir", self.data_dir]
        done = subprocess.run(command_line, env=_environment(), capture_output=True, text=True, check=True)
        print(done.stdout.strip())


_BROKER = (sys.executable, "-m", "broker")


@contextmanager
def own_broker(*options: str, **variables: str) -> Iterator[OwnBroker]:
    """Runs `broker serve` with these options and environment variables; its data are deleted at the end."""
    with tempfile.TemporaryDirectory() as directory:
        data, log = Path(directory, "data"), Path(directory, "log")
        command = [*_BROKER, "serve", "--data-dir", data, "--port", "0", *options]
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment() | variables
            ) as process,
        ):
            assert process.stdout is not None
            ready = next((line for line in process.stdout if line.startswith("Ready: ")), "")
            assert ready, log.read_text()
            try:
                yield OwnBroker(ready.removeprefix("Ready: ").strip(), data)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate()


def _environment() -> dict[str, str]:
    """This program's environment without the address of another database."""
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
