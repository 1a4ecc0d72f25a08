"""`broker auth bootstrap`: creates a key with every permission, for the operator of the database."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.app.settings.fields import Settings
from broker.cli.server.admin_key import make_admin_key
from broker.cli.server.announcements import say
from broker.cli.server.own_database import own_database
from broker.cli.server.schema import check_schema, schema_upgrade
from broker.client.stop import Misuse, Stop
from broker.db.embedded.cluster import Cluster, ClusterError, ClusterInUse
from broker.net.listener import host_and_port
from broker.observability.log import set_up_log


def bootstrap(settings: Settings, key_file: str) -> int:
    """Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    path = Path(key_file).absolute()
    if path.exists():
        raise Misuse(f"--key-file: {path} exists; name a file that does not, so that no key is lost")
    base_url = settings.issuer or f"http://{host_and_port(settings.host, settings.port)}"
    with used_database(settings) as (url, schema):
        make_admin_key(url, schema, base_url=base_url.rstrip("/"), path=path)
    say(f"The key of the administrator is in {path}; its token_uri is {base_url.rstrip('/')}/token (--issuer).")
    return 0


@contextmanager
def used_database(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields the URL of the database and its schema.  A broker may run on it.  Raises Stop."""
    if settings.database_url:
        url = own_database(settings)
        yield url, check_schema(url, settings.database_schema).schema
        return
    cluster = Cluster(Path(settings.data_dir))
    if not cluster.exists():
        raise Stop(f"there is no database in {settings.data_dir}; give --data-dir, or --database-url for your own")
    try:
        with suppress(ClusterInUse):  # then a broker runs on it, and PostgreSQL with it
            cluster.open()
        with schema_upgrade(is_new=False) as upgrade:
            schema = upgrade(cluster.url, settings.database_schema).schema
        yield cluster.url, schema
    except ClusterError as error:
        raise Stop(str(error)) from error
    finally:
        cluster.close()
