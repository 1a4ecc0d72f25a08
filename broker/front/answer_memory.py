"""A budget for the bytes of large answers that are on their way to slow readers.

It is shared by project, then by resource, for an answer is of a subscription mostly (domain/fair_stock.py): whoever
pulls and does not read gets nothing more, and others pull on (M1).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from broker.domain.fair_stock import FairStock, Path
from broker.domain.names import project_within


class AnswerMemory:
    """About `limit` bytes: answers that are being made when it is reached are sent.  As many again are for whoever
    has none on the way, so that those of others do not stop him.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stock = FairStock(limit)

    @property
    def held(self) -> int:
        """By all."""
        return self._stock.total

    def has_room(self, resource: str) -> bool:
        """Whether more answers may be made about a resource ("projects/p/subscriptions/s")."""
        stock, path = self._stock, _path(resource)
        if not stock.held(path[:1]):
            return stock.total < 2 * self._limit
        return stock.room(path) > 0

    @contextmanager
    def holding(self, resource: str, size: int) -> Iterator[None]:
        """So many bytes, within the block."""
        path = _path(resource)
        self._stock.hold(path, amount=size)
        try:
            yield
        finally:
            self._stock.give_back(path, amount=size)


def _path(resource: str) -> Path:
    return project_within(resource), resource
