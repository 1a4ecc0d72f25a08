"""Reads the broker processes that reported lately."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import processes
from broker.model.page import Page


async def list_processes(connection: ResourceConnection, page: Page) -> Sequence[Any]:
    """Returns the processes of a page ordered by id, and one more if there are more."""
    found = select(processes).where(processes.c.process_id > page.after).order_by(processes.c.process_id)
    return list((await connection.execute(found.limit(page.size + 1))).all())
