"""What `broker doctor` says of a broker that asks who calls, while its database is away."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.net.tls.material import ServerTls, TlsMaterial
from tests.cli.client.terminal import Terminal, terminal
from tests.fixtures.access import guarded
from tests.fixtures.broker import eventually
from tests.fixtures.in_process import running_in_process
from tests.fixtures.tls import make_pair

__all__ = ["terminal"]

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.one_server("a database is shut to all sessions")]


async def test_while_the_database_is_away_the_doctor_does_not_say_that_anybody_may_do_anything(
    clone: Callable[[], AbstractContextManager[str]], server_url: str, terminal: Terminal, tmp_path: Path
) -> None:
    with clone() as url:
        name = make_url(url).database
        async with guarded(url) as broker:
            admin = tmp_path / "admin.json"
            admin.write_text(json.dumps(broker.admin))
            line = f"broker doctor --json --url {broker.client.base_url} --project guarded --credentials {admin}"

            async def states() -> dict[str, str]:
                done = await asyncio.to_thread(terminal.pipe, line)
                return {one["check"]: one["state"] for one in json.loads(done.text)}

            with psycopg.connect(server_url, autocommit=True) as server:
                server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                server.execute(terminate, [name])

                async def is_away() -> bool:
                    return (await broker.client.get("/readyz")).status_code == 503

                async def is_back() -> bool:
                    return not await is_away()

                await eventually(is_away)
                found = await states()
                assert found.pop("server") == "ok"
                assert found.pop("ready") == "error"
                assert found.pop("transport", "warning") == "warning"
                assert set(found.values()) == {"unknown"}
                server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
                await eventually(is_back)
                assert (await states())["permissions"] == "ok"


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [(60, "ok", "valid until 2"), (29.5, "warning", "in 29 days")],
)
async def test_the_doctor_says_until_when_a_certificate_is_valid(
    clone: Callable[[], AbstractContextManager[str]],
    terminal: Terminal,
    tmp_path: Path,
    days: float,
    state: str,
    said: str,
) -> None:
    pair = make_pair(days=days, since_days=90 - days)
    certificate, _ = pair.write(tmp_path, "port")
    with clone() as url:
        broker = Broker(AppConfig(database_url=url))
        tls = ServerTls(TlsMaterial(pair.certificate, pair.key))
        async with running_in_process(broker, tls=tls) as client:
            line = f"broker doctor --json --url {client.base_url} --ca-file {certificate} --project p"
            done = await asyncio.to_thread(terminal.pipe, line)
            [found] = [one for one in json.loads(done.text) if one["check"] == "certificate"]
            assert (done.code, found["state"], said in found["finding"]) == (0, state, True), found
            unknown = await asyncio.to_thread(terminal.pipe, line.replace(f"--ca-file {certificate}", ""))
            [found] = json.loads(unknown.text)
            assert (found["check"], found["command"].partition(" ")[0]) == ("server", "--ca-file")
