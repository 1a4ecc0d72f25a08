"""The number of messages that a test of a filter compares."""

BODY_COUNTS_FOR = 10  # messages does one whose body is read: some 7 microseconds against less than 1


def most_compared(messages: int, body_path: str | None) -> int:
    """Returns how many messages a check compares that compares up to `messages` by their attributes.

    `body_path`: the jsonpath that reads bodies, if any; then fewer are compared.
    """
    return messages if body_path is None else max(messages // BODY_COUNTS_FOR, 1)
