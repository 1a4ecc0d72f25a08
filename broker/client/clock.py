"""The clock of the machine on which a command runs.  Relative times such as "an hour ago" refer to it."""

from datetime import UTC, datetime


def machine_time() -> datetime:
    return datetime.now(UTC)
