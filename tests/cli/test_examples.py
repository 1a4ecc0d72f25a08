"""The examples of the commands that are a broker, or look after its database: each is run, and says what is known.

`UPDATE_GOLDEN=1 pytest tests/cli/test_examples.py` writes down what they say now: look at the difference.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from broker.cli.main import COMMANDS
from broker.cli.server_commands import Command
from tests.cli.processes import run_broker
from tests.fixtures.broker import BrokerProcess

GOLDEN = Path(__file__).parent / "examples.txt"
STORY = (
    "broker settings --data-dir data",
    "broker serve --data-dir data --project shop --apply shop.yaml",
    "broker serve --data-dir data",
    "broker database --data-dir data psql -c 'SELECT name FROM topics'",
    "broker sql grant shop_app --data-dir data --project shop",
    "broker sql grants --data-dir data",
    "broker sql refused --data-dir data",
    "broker sql revoke shop_app --data-dir data --project shop",
    "broker auth bootstrap --data-dir data --key-file admin.json",
    "broker secrets rotate --data-dir data",
    "broker secrets decrypt --data-dir data",
    "broker backup check --data-dir data",
    "broker backup restored --data-dir data",
    "broker migrate --database-url $DATABASE_URL",
)
_STEADY = (
    (r"postgresql://\S+", "postgresql://…"),
    (r"broker \d+\.\d+\.\d+\S*,", "broker 0.2.0,"),
    (r"\b\d{4}_(baseline|min_\d{4})\b", "0001_baseline"),
    (r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:8085"),
    (r"\b[0-9a-f]{8,40}\b", "0123456789abcdef"),
    (r"out [\d,]+ ids", "out 1,000,000 ids"),
    (r"after \d{4}-.* ago", "after 2026-01-01 00:00:00 UTC, 0:00:03 ago"),
    (r"(?m) +$", ""),
)


def test_each_command_has_examples_that_are_run() -> None:
    commands = {name: command for name, command in COMMANDS.items() if isinstance(command, Command)}
    assert all(command.examples for command in commands.values())
    examples = {example for command in commands.values() for example in command.examples}
    assert examples == set(STORY)
    assert all(each.startswith(f"broker {name} ") for name, one in commands.items() for each in one.examples)


@pytest.mark.slow
@pytest.mark.ci
def test_what_each_says(empty_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("topics: {orders: {}}")
    reported = "\n".join(f"$ {line}\n{_typed(line, empty_database_url, tmp_path)}" for line in STORY)
    reported = reported.replace(str(tmp_path), "/home/me")
    for pattern, replacement in _STEADY:
        reported = re.sub(pattern, replacement, reported)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(reported, encoding="utf-8")
    assert reported == GOLDEN.read_text(encoding="utf-8")


def _typed(line: str, database_url: str, directory: Path) -> str:
    """What it prints, without the log; a broker is ended by Ctrl-C once it is ready."""
    words = shlex.split(line.replace("$DATABASE_URL", shlex.quote(database_url)))[1:]
    environment = {"BROKER_PORT": "0"}
    if words[0] == "serve":
        broker = BrokerProcess(*words[1:], env=environment, cwd=directory).wait_until_ready()
        assert broker.stop() == 0
        return "".join(f"{each}\n" for each in broker.log if not each.startswith("20"))
    done = run_broker(*words, env=environment, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout
