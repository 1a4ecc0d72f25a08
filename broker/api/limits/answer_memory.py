"""A budget for the bytes of large responses that clients have not read yet.

Projects share the budget, and within a project its resources (fairness/shared_capacity.py): a client that does not
read its responses gets no more of them, and others are served as before.  All calls over REST and gRPC count.
Pulls reserve capacity before they claim (core/pulling/pull_queue.py); calls that read data reserve it when their
turn comes (fairness/resource_turns.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from broker.fairness.shared_capacity import Path, SharedCapacity
from broker.model.names import project_within

LARGE_ANSWER_BYTES = 65_536  # the transport buffers as much without waiting for the reader
LARGEST_ANSWER_BYTES = 14_000_000  # 10 MB of messages, as JSON


class AnswerMemory:
    """A budget of about `limit` bytes: answers that are being made when it is reached are sent.

    As many bytes again are for resources that have no answer on the way, so that the answers of others do not stop
    them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shared_capacity = SharedCapacity(limit)

    @property
    def held(self) -> int:
        """The bytes of all answers."""
        return self._shared_capacity.total

    def has_capacity(self, resource: str, *, is_short: bool = False) -> bool:
        """Whether more answers may be made about a resource ("projects/p/subscriptions/s").

        `is_short`: an answer that is no list and has no messages.  Answers of calls that change something have some
        more room: a call that takes a role away from a reader must get through.
        """
        shared_capacity, path = self._shared_capacity, _path(resource)
        held = shared_capacity.held(path[:1])
        if not held or (is_short and held < self._limit + LARGEST_ANSWER_BYTES):
            return shared_capacity.total < 2 * self._limit
        return shared_capacity.available(path) > 0

    @contextmanager
    def holding(self, resource: str, size: int) -> Iterator[None]:
        """Holds so many bytes within the block."""
        path = _path(resource)
        self._shared_capacity.hold(path, amount=size)
        try:
            yield
        finally:
            self._shared_capacity.give_back(path, amount=size)


def _path(resource: str) -> Path:
    return project_within(resource), resource
