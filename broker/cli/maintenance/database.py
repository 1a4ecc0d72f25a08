"""`broker database`: runs PostgreSQL's own programs on the embedded PostgreSQL, to inspect it or to migrate from
it.
"""

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from broker.app.settings.fields import Settings
from broker.client.stop import Misuse, Stop
from broker.client.terminal import write_line
from broker.db.database_url import DEFAULT_SCHEMA
from broker.db.driver.text import quoted
from broker.db.embedded.binaries import bin_directory
from broker.db.embedded.cluster import Cluster, ClusterError, ClusterInUse
from broker.db.schema.schema_state import DatabaseUnreachable, schemas_of_other_roles

_FINDING_TABLES = f"-csearch_path%3D{DEFAULT_SCHEMA}%2Cpublic"  # the broker's by their names alone

PROGRAMS = ("psql", "pg_dump", "pg_restore")  # each takes --dbname=URL


def run_on_embedded(settings: Settings, command: Sequence[str]) -> int:
    """Runs one of PROGRAMS with the address of the database.  Returns its exit code.  Raises Stop.

    PostgreSQL is started for it, and stopped afterwards, unless a broker runs on the data directory.
    """
    program, *arguments = command or ("psql",)
    if program not in PROGRAMS:
        raise Misuse(f"`broker database` runs {', '.join(PROGRAMS)}, not {program!r}")
    cluster = Cluster(Path(settings.data_dir))
    if not cluster.exists():
        raise Stop(f"there is no database in {settings.data_dir}; `broker serve` makes one (see --data-dir)")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # each unwinds what was started
    try:
        with contextlib.suppress(ClusterInUse):  # then a broker runs on it, and PostgreSQL with it
            cluster.open()
        # Ctrl-C is the program's: psql gives up a statement by it.
        signal.signal(signal.SIGINT, lambda *_: None)
        there = f"--dbname={cluster.url}&options={_FINDING_TABLES}"
        if program == "pg_dump":
            arguments = [*_leaving_out_others(cluster.url), *arguments]
        with subprocess.Popen([bin_directory() / program, there, *arguments]) as process:  # noqa: S603
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                raise
    except ClusterError as error:
        raise Stop(str(error)) from error
    except KeyboardInterrupt:
        return 1
    finally:
        cluster.close()


def _leaving_out_others(url: str) -> list[str]:
    """The options by which pg_dump leaves out what it may not read, and would fail for.

    Large objects belong to no schema; the broker has none, and any role can make one.
    """
    try:
        schemas = schemas_of_other_roles(url)
    except DatabaseUnreachable as error:
        raise Stop(str(error)) from error
    if schemas:
        left_out = f"the dump is without the schemas that belong to other roles: {', '.join(schemas)}"
        write_line(f"broker: {left_out}", error=True)
    return ["--no-blobs", *(f"--exclude-schema={quoted(schema)}" for schema in schemas)]
