"""A PostgreSQL that no broker embeds, in a process of its own: gRPC's threads and forks do not go together.

python -m tests.faults.postgres DIRECTORY    prints the URL when it is up and migrated; ends with its input
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from broker.db.embedded.cluster import CONFIGURATION, Cluster
from broker.db.schema import migrations


async def _keep(cluster: Cluster) -> None:
    keeper = asyncio.create_task(cluster.keep_running())
    await asyncio.to_thread(sys.stdin.read)
    keeper.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeper


def main() -> None:
    CONFIGURATION["max_connections"] = "80"  # enough for two brokers, and soon exhausted
    cluster = Cluster(Path(sys.argv[1]))
    cluster.open()
    try:
        migrations.upgrade(cluster.url)
        print(cluster.url, flush=True)
        asyncio.run(_keep(cluster))
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
