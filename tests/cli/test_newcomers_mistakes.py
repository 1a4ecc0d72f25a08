"""What a newcomer does wrong is told in one line: what is wrong, and what to do, without a traceback.

The exit code is 2 for what makes no sense, 1 for what could not be done.
"""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from broker.db.schema.schema_state import head_revision
from tests.cli.fake_postgres import READY, answering_logins, refusal
from tests.cli.processes import complaint
from tests.fixtures.broker import repository
from tests.fixtures.database import other_database

pytestmark = [pytest.mark.slow, pytest.mark.ci]

SERVE = ("serve", "--port", "0")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sevre"], "there is no command 'sevre'; did you mean serve? (serve, "),
        (["serve", "--prot", "9000"], "`broker serve` has no option --prot; did you mean --port? ("),
        (
            ["serve", "--por", "9000"],
            "`broker serve` has no option --por; did you mean --port? (",
        ),  # nothing is guessed
        (["serve", "--port"], "argument --port: expected one argument ("),
        (["serve", "9000"], "`broker serve` does not know what '9000' is for ("),
        (["serve", "--port", "70000"], "--port must be a whole number from 0 to 65535, not '70000'"),
        (
            ["serve", "--host", "localhost:9000"],
            "--host must be an address or a name of this machine, without a port, ",
        ),
        (["serve", "--workers", "0"], "--workers must be a whole number from 1 to 256, or auto, not '0'"),
        (["serve", "--data-dir", ""], "--data-dir must be a path, not ''"),
        (
            ["serve", "--push-ca-file", "/no/such.pem"],
            "--push-ca-file must be a file with certificates (PEM), not '/no/s",
        ),
        (["serve", "--push-ca-file", __file__], "--push-ca-file must be a file with certificates (PEM), not '/"),
        (
            ["serve", "--tls-certificate", "/no/such.pem"],
            "--tls-certificate must be a file with certificates (PEM), not '/no/such.pem': No such fil",
        ),
        (
            ["serve", "--tls-certificate", "/proc"],
            "--tls-certificate must be a file with certificates (PEM), not '/p",
        ),
        (
            ["serve", "--tls-key", __file__],
            "--tls-key must be a file with a private key (PEM) without a passphrase",
        ),
        (["serve", "--cleartext-port", "9000"], "--cleartext-port needs --tls-certificate and --tls-key: without "),
        (
            ["serve", "--database-url", "mysql://u:hush-hush@h/x"],
            "--database-url must be a URL such as postgresql://",
        ),
        (["serve", "--database-url", "localhost"], "--database-url must be a URL such as postgresql://"),
        (
            ["migrate", "--database-url", "postgresql//u:hush-hush@h/x"],
            "--database-url must be a URL such as postgresql://",
        ),
        (["migrate"], "migrate needs --database-url or DATABASE_URL"),
    ],
    ids=lambda value: " ".join(value).replace("/", "|") if isinstance(value, list) else "",
)
def test_what_makes_no_sense_on_the_command_line(arguments: list[str], expected: str) -> None:
    said = complaint(*arguments, code=2)
    assert said.startswith(expected)
    assert "hush-hush" not in said


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("BROKER_POOL_SIZ", "4", "BROKER_POOL_SIZ is no setting; did you mean BROKER_POOL_SIZE? ("),
        ("BROKER_POOL_SIZE", "0", "BROKER_POOL_SIZE must be a whole number from 1 to 1000, not '0'"),
        ("BROKER_LOG_LEVEL", "loud", "BROKER_LOG_LEVEL must be debug, info, warning or error, not 'loud'"),
        (
            "BROKER_JANITOR_INTERVAL_SECONDS",
            "nan",
            "BROKER_JANITOR_INTERVAL_SECONDS must be a number of seconds from ",
        ),
        (
            "BROKER_ISSUER",
            "example.com",
            "BROKER_ISSUER must be a URL such as https://broker.example.com, not 'example",
        ),
        (
            "BROKER_PUSH_ALLOWED_NETWORKS",
            "10.0.0.0/99",
            "BROKER_PUSH_ALLOWED_NETWORKS must be networks (CIDR) such as ",
        ),
        ("DATABASE_URL", "mysql://u:hush-hush@h/x", "DATABASE_URL must be a URL such as postgresql://"),
    ],
)
def test_what_makes_no_sense_in_the_environment(variable: str, value: str, expected: str) -> None:
    said = complaint(*SERVE, env={variable: value}, code=2)
    assert said.startswith(expected)
    assert "hush-hush" not in said


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = complaint("serve", "--data-dir", str(tmp_path / "data"), "--port", str(port))
    assert said.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use; end the program that ")
    assert not (tmp_path / "data" / "postgres").exists()


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    said = complaint(*SERVE, "--data-dir", str(tmp_path), "--host", "192.0.2.1")
    assert said.endswith("Cannot assign requested address; --host must be an address of this machine")
    assert "cannot listen on no-such-name.invalid:0: " in complaint(
        *SERVE, "--data-dir", str(tmp_path), "--host", "no-such-name.invalid"
    )


def test_a_data_directory_that_is_a_file_or_below_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        said = complaint(*SERVE, "--data-dir", str(directory))
        assert said.startswith(f"The data directory {directory} cannot be used: ")


def test_a_data_directory_that_may_not_be_written() -> None:
    """/proc for root, who may write everywhere else."""
    said = complaint(*SERVE, "--data-dir", "/proc/broker")
    assert said.startswith("The data directory /proc/broker cannot be used: ")


def test_a_data_directory_of_another_broker_that_runs(tmp_path: Path) -> None:
    with (tmp_path / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert complaint(*SERVE, "--data-dir", str(tmp_path)) == f"A broker is running on {tmp_path} already."


def test_the_data_of_another_major_version_of_postgresql(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("13\n")
    said = complaint(*SERVE, "--data-dir", str(tmp_path))
    assert "made by PostgreSQL 13; this broker embeds 18. Dump it with the old version, or choose another" in said


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", tmp_path], capture_output=True
    )
    if tried.returncode:
        pytest.skip("only root can mount a disk that is full")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_no_room_for_a_database(full_disk: Path) -> None:
    said = complaint(*SERVE, "--data-dir", str(full_disk / "data"))
    assert os.strerror(errno.ENOSPC) in said


@pytest.mark.parametrize("command", [SERVE, ("migrate",)], ids=["serve", "migrate"])
def test_a_password_that_is_wrong(command: tuple[str, ...]) -> None:
    with answering_logins(refusal("28P01", 'password authentication failed for user "user"')) as url:
        said = complaint(*command, "--database-url", url)
    assert 'password authentication failed for user "user"' in said
    assert "hush-hush" not in said


def test_a_postgresql_that_is_too_old() -> None:
    with answering_logins(READY) as url:
        said = complaint(*SERVE, "--database-url", url)
    assert said == "PostgreSQL 14 is too old: the broker needs 15 or newer"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://user:hush-hush@127.0.0.1:1/db", "Connection refused"),
        ("postgresql+psycopg://user:hush-hush@127.0.0.1:1/db", "Connection refused"),  # SQLAlchemy's spelling
        ("postgresql://user:hush-hush@no-such-name.invalid/db", "no-such-name.invalid"),
        ("postgresql://user:hush-hush@/db?host=/no/such/directory", "No such file or directory"),
    ],
)
def test_a_server_that_cannot_be_reached(url: str, expected: str) -> None:
    for command in (SERVE, ("migrate",)):
        said = complaint(*command, "--database-url", url)
        assert expected in said
        assert "hush-hush" not in said


def test_a_database_that_does_not_exist(server_url: str) -> None:
    said = complaint(*SERVE, "--database-url", other_database(server_url, "no_such_database"))
    assert 'database "no_such_database" does not exist' in said


def test_a_database_that_was_never_migrated(empty_database_url: str) -> None:
    said = complaint(*SERVE, "--database-url", empty_database_url)
    assert "run `broker migrate`" in said
    assert head_revision() in said


def test_a_role_that_may_do_nothing(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS may_do_nothing")
        admin.execute("CREATE ROLE may_do_nothing LOGIN")
        url = re.sub(r"//[^@]*@", "//may_do_nothing@", empty_database_url)
        said = complaint("migrate", "--database-url", url)
        admin.execute("DROP ROLE may_do_nothing")
    assert "permission denied" in said


def test_an_old_python_is_told_so_by_make_and_by_the_command(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    made = subprocess.run(
        ["make", "--no-print-directory", "PYTHON=", f"VENV={venv}", f"{venv}/bin/python"],
        cwd=repository(),
        capture_output=True,
        text=True,
    )
    assert (made.returncode, made.stdout) == (2, "Python 3.11 or newer is needed and was not found.\n")
    old = "import sys; sys.version_info = (3, 10, 4, 'final', 0); import broker.cli.main"
    tried = subprocess.run([sys.executable, "-c", old], cwd=repository(), capture_output=True, text=True)
    assert (tried.returncode, tried.stderr) == (1, "broker: Python 3.11 or newer is needed; this is 3.10\n")


def test_without_a_command_the_help_is_shown() -> None:
    done = subprocess.run([sys.executable, "-m", "broker"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "serve, migrate" in done.stderr


def test_whoever_reads_only_the_first_lines_of_the_settings_gets_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "broker", "settings"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
