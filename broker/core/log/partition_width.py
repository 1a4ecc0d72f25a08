"""Computes the width of the next partition of `messages` (docs/decisions/0003)."""

from datetime import timedelta

TARGET_BYTES = 512 * 1024 * 1024
MIN_WIDTH, MAX_WIDTH = timedelta(minutes=10), timedelta(days=1)
_MAX_GROWTH = 2.0
_MAX_SHRINKING = 1 / 64


def next_width(width: timedelta, size: int) -> timedelta:
    """The width of the next partition, after one of `width` that came to `size` bytes.

    Under heavy load it shrinks at once, so that space is given back within the hour; when the load ends it only
    doubles from one partition to the next, so that a burst after a quiet night does not fill a day's partition.
    """
    factor = min(_MAX_GROWTH, max(_MAX_SHRINKING, TARGET_BYTES / max(size, 1)))
    seconds = round((width * factor).total_seconds() / 60) * 60
    return min(MAX_WIDTH, max(MIN_WIDTH, timedelta(seconds=seconds)))
