"""The number of messages that a test of a filter compares."""

BODY_COUNTS_FOR = 10  # a message whose body is read counts for so many: about 7 µs instead of less than 1


def most_compared(messages: int, body_path: str | None) -> int:
    """Returns how many messages a check compares that compares up to `messages` by their attributes.

    `body_path`: the jsonpath that reads bodies, if any; then fewer are compared.
    """
    return messages if body_path is None else max(messages // BODY_COUNTS_FOR, 1)
