"""A budget for the bytes of requests, or of answers, that a process holds at a time."""


class RequestMemory:
    """`held` bytes of at most `limit`; the budget is one process's, shared by its doors."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    @property
    def full(self) -> bool:
        return self.held >= self.limit

    def has_room(self, size: int, *, beyond: int = 0) -> bool:
        """Whether so many bytes more stay within the limit, or within `beyond` bytes past it.

        Something is always taken when nothing is held, however small the limit.
        """
        return not self.held or self.held + size <= self.limit + beyond
