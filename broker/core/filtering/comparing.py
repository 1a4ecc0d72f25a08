"""How many messages a check compares with a filter."""

BODY_COUNTS_FOR = 10  # messages does one whose body is read: some 7 microseconds against less than 1


def most_compared(messages: int, body_path: str | None) -> int:
    """Where a check compares up to `messages` by their attributes.  `body_path`: what reads bodies."""
    return messages if body_path is None else max(messages // BODY_COUNTS_FOR, 1)
