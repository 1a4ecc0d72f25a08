"""A budget for the bytes of requests, or of answers, that a process holds at a time."""


class RequestMemory:
    """`held` bytes of at most `limit`; the budget is one process's, shared by its doors.

    `arriving` of them are of requests that are not complete.  They may be three quarters of the limit, so that
    senders who are slow, or who never end, do not take all of it from those who send at once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.arriving = 0

    @property
    def full(self) -> bool:
        return self.held >= self.limit

    def may_arrive(self, size: int, *, own: int) -> bool:
        """Whether so many bytes more may be of a request that is not complete, and has `own` already.

        One that is alone may, however small the limit.
        """
        return self.arriving <= own or self.arriving + size <= self.limit * 3 // 4

    def has_room(self, size: int, *, beyond: int = 0) -> bool:
        """Whether so many bytes more stay within the limit, or within `beyond` bytes past it.

        Something is always taken when nothing is held, however small the limit.
        """
        return not self.held or self.held + size <= self.limit + beyond
