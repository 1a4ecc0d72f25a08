"""What `broker doctor` finds, and what it says to do."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import psycopg
import pytest

from benchmarks.servers import Emulator, find_emulator
from broker.db.schema import migrations
from tests.cli.client.terminal import Terminal
from tests.fixtures.broker import NO_TLS, Json


def _checks(terminal: Terminal, *options: str, code: int = 0) -> dict[str, Json]:
    done = terminal.pipe(f"broker doctor --json {' '.join(options)}")
    assert done.code == code, done.text
    return {one["check"]: one for one in json.loads(done.text)}


def test_a_server_that_is_not_there_is_to_be_started(terminal: Terminal) -> None:
    found = _checks(terminal, "--url http://127.0.0.1:1", code=1)
    assert list(found) == ["server"]
    assert found["server"]["state"] == "error"
    assert found["server"]["command"].startswith("`broker serve` starts a broker")


def test_the_doctor_looks_at_the_database_and_at_what_a_project_has(
    terminal: Terminal, broker_url: str, project: str, clone: Callable[[], AbstractContextManager[str]]
) -> None:
    with httpx.Client(base_url=f"{broker_url}/v1/{project}", verify=NO_TLS) as client:
        client.put("/topics/orders", json={})
        client.put("/subscriptions/billing", json={"topic": f"{project}/topics/orders"})
        client.delete("/topics/orders")
    options = (f"--url {broker_url}", f"--project {project}")
    with clone() as url:
        with psycopg.connect(url) as connection:  # the server of tests may lose what it has
            is_safe = connection.execute("SHOW fsync").fetchone() == ("on",)
        found = _checks(terminal, *options, "--database-url", url, code=0 if is_safe else 1)
        assert ("durability" in found, found.get("fsync", {}).get("state")) == (
            is_safe,
            None if is_safe else "error",
        )
        assert found["topics"]["why"].startswith("billing: ")
        assert found["topics"]["command"] == "broker sub delete billing"
        assert {found[name]["state"] for name in ("server", "ready", "database", "schema")} == {"ok"}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE broker.alembic_version SET version_num = '0001'")
        found = _checks(terminal, *options, "--database-url", url, code=1)
        why = "a build from before the first release made"
        assert (found["schema"]["state"], why in found["schema"]["why"]) == ("error", True)
    found = _checks(terminal, *options, "--database-url postgresql://127.0.0.1:1/x", code=1)
    assert found["database"]["state"] == "error"


def test_the_doctor_names_what_somebody_has_frozen_or_paused(
    terminal: Terminal, broker_url: str, project: str
) -> None:
    with httpx.Client(base_url=f"{broker_url}/v1/{project}", verify=NO_TLS) as client:
        client.put("/topics/orders", json={})
        client.post("/topics/orders:freeze", json={"reason": "Stocktaking."})
        body = {"topic": f"{project}/topics/orders", "interval": "3600s", "message": {"data": "YQ=="}}
        assert client.put("/schedules/hourly", json=body).status_code == 200
        since = client.post("/schedules/hourly:pause").json()["pauseTime"]
    found = _checks(terminal, f"--url {broker_url}", f"--project {project}")
    frozen, paused = found["orders"], found["hourly"]
    assert (frozen["finding"], frozen["why"]) == ("frozen", "it refuses publishes: Stocktaking.")
    assert frozen["command"] == "broker topic unfreeze orders"
    assert (paused["finding"], since in paused["why"]) == ("paused", True)
    assert paused["command"] == "broker schedule resume hourly"


def test_the_doctor_finds_the_database_where_serve_finds_it(
    terminal: Terminal, broker_url: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    migrations.upgrade(empty_database_url, schema="elsewhere")
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("BROKER_DATABASE_URL", empty_database_url)
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/x")
    monkeypatch.setenv("BROKER_DATABASE_SCHEMA", "elsewhere")
    monkeypatch.setenv("BROKER_ODDITY", "x")

    def found(*options: str) -> dict[str, Json]:
        return {
            one["check"]: one for one in json.loads(terminal.pipe(f"broker doctor --json {' '.join(options)}").text)
        }

    by_variables = found()
    assert by_variables["database"]["state"] == "ok"
    assert (by_variables["schema"]["state"], by_variables["schema"]["finding"][:12]) == ("ok", "elsewhere at")
    assert by_variables["settings"]["finding"].startswith("BROKER_ODDITY is no setting and is ignored")
    assert found("--database-schema", "broker")["schema"]["state"] == "error"
    (tmp_path / "password").write_text("secret\n")
    away = "postgresql://somebody@127.0.0.1:1/x"
    by_file = found("--database-url", away, "--database-password-file", str(tmp_path / "password"))
    assert by_file["database"]["state"] == "error"
    done = terminal.pipe("broker doctor --database-schema 1x")
    assert (done.code, "--database-schema must be" in done.text) == (2, True)


def test_a_dead_letter_topic_that_nobody_subscribes_to_is_warned_of(
    terminal: Terminal, broker_url: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("BROKER_PROJECT", project.removeprefix("projects/"))
    for name in ("orders", "failed"):
        assert terminal.pipe(f"broker topic create {name}").code == 0
    warning = "Warning: failed has no subscription: nobody reads the dead letters"
    made = terminal.pipe("broker sub create billing --topic orders --dead-letter-topic failed")
    assert (made.code, warning in made.text) == (0, True), made.text
    changed = terminal.pipe("broker sub update billing --max-attempts 7")
    assert (changed.code, warning in changed.text) == (0, True), changed.text
    assert warning not in terminal.pipe("broker sub update billing --ack-deadline 20").text
    said = f"Its dead-letter topic {project}/topics/failed has no subscription"
    assert said in terminal.pipe("broker lag").text
    found = _checks(terminal)
    assert (found["billing"]["state"], said in found["billing"]["why"]) == ("warning", True)
    assert terminal.pipe("broker sub create failed --topic failed").code == 0
    assert warning not in terminal.pipe("broker sub update billing --max-attempts 8").text
    assert said not in terminal.pipe("broker lag").text
    assert "billing" not in _checks(terminal)
    assert terminal.pipe("broker topic delete failed --yes").code == 0
    assert "topics/failed does not exist" in _checks(terminal)["billing"]["why"]


@pytest.fixture(scope="module")
def emulator_url() -> Iterator[str]:
    """Of Google's emulator, where it is installed."""
    jar = find_emulator()
    if jar is None:
        pytest.skip("Google's emulator is not installed")
    emulator = Emulator(jar, "256m")
    emulator.start()
    try:
        yield f"http://{emulator.host}:{emulator.port}"
    finally:
        emulator.stop()


@pytest.mark.slow
@pytest.mark.ci
def test_commands_work_against_google_s_emulator_or_name_what_it_does_not_know(
    terminal: Terminal, emulator_url: str, project: str
) -> None:
    where = f"--url {emulator_url} --project {project.removeprefix('projects/')}"
    _bench(terminal, emulator_url, project)
    for line, said in (
        ("topic create orders", "Created"),
        ("sub create billing --topic orders", "Created"),
        ("publish orders one", ""),
        ("pull billing --ack", "one"),
        ("sub update billing --ack-deadline 30", "Changed"),
        ("export", "ackDeadlineSeconds: 30"),
        ("snapshot create before --sub billing", "Created"),
        ("seek billing --snapshot before", "billing has moved"),
        ("doctor", "it is not this broker"),
    ):
        done = terminal.pipe(f"broker {line} {where}")
        assert (done.code, said in done.text) == (0, True), done.text
    for line in ("lag", "dlq summary billing", "op list", "peek billing", "purge billing --yes"):
        done = terminal.pipe(f"broker {line} {where}")
        assert (done.code, "it is not this broker, or an older one" in done.text) == (1, True), done.text


def test_a_bench_counts_every_message_and_leaves_nothing_behind(
    terminal: Terminal, broker_url: str, project: str
) -> None:
    _bench(terminal, broker_url, project)


def _bench(terminal: Terminal, url: str, project: str) -> None:
    project = project.removeprefix("projects/")
    server = f"--url {url} --project {project}"
    done = terminal.pipe(f"broker bench {server} --messages 30 --batch 7 --connections 3 --json")
    found = json.loads(done.text)
    assert {name: run["messages"] for name, run in found.items()} == {"publish": 30, "consume": 30, "latency": 30}
    assert all(run["perSecond"] > 0 for run in found.values())
    left = [
        httpx.get(f"{url}/v1/projects/{project}/{kind}", verify=NO_TLS).json()
        for kind in ("topics", "subscriptions")
    ]
    assert left == [{}, {}]
