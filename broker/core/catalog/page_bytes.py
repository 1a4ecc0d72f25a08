"""Limits the bytes of a page of resources, because some resources have hundreds of kilobytes."""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import ColumnElement, Select, func
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.model.page import Page

MAX_PAGE_BYTES = 10_000_000  # of a page, unless its first item alone is larger


def bytes_of(*columns: ColumnElement[Any]) -> ColumnElement[int]:
    """The bytes of these columns, of text or bytea, together."""
    sizes = [func.coalesce(func.octet_length(column), 0) for column in columns]
    return reduce(add, sizes)


async def cut_to_bytes(connection: AsyncConnection, sizes: Select[Any], page: Page) -> Page:
    """The page, with no more items than have MAX_PAGE_BYTES together.

    `sizes`: in bytes, of all items of the list from the page on, in their order.
    """
    total = 0
    for count, size in enumerate(await connection.scalars(sizes.limit(page.size))):
        total += size
        if count and total > MAX_PAGE_BYTES:
            return replace(page, size=count)
    return page
