"""The clock of the machine on which a command is typed: "an hour ago" is meant by it."""

from datetime import UTC, datetime


def machine_time() -> datetime:
    return datetime.now(UTC)
