"""The storage limits of an installation: when publishing pauses and resumes, and the error for callers.

Publishing pauses while the file system of the embedded PostgreSQL has less free space than a limit, or while the
broker's tables take more than a limit.  It resumes only with some distance to the limit, so that it does not
alternate between the two.
"""

import re
from dataclasses import dataclass

from broker.model.errors import StorageLow

RESUME_FACTOR = 1.2
GIB = 2**30
_SHARE_OF_DISK = 0.05
_MOST_OF_DISK = 0.2  # on a small file system the default limit is this share, or nothing could ever be published
_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_MAX_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free space of the file system that has the embedded PostgreSQL's data, in bytes."""

    directory: str
    free: int
    min_free: int
    is_low: bool

    @property
    def resumes_at(self) -> int:
        """Publishing resumes once so many bytes are free."""
        return int(self.min_free * RESUME_FACTOR)

    @property
    def measured(self) -> str:
        """The measurement in words, for the operator, who may know where the data is."""
        return f"{format_size(self.free)} are free on the file system of {self.directory}"

    @property
    def finding(self) -> str:
        """The same, with the limit."""
        return f"{self.measured}; {self._rule}"

    @property
    def remedy(self) -> str:
        """The ways in which an operator can end the condition."""
        return "free disk space, purge or delete what keeps messages, or lower --disk-free-min"

    def refusal(self) -> StorageLow:
        """The answer to a publish, which has what the caller needs and not where the data is."""
        return StorageLow(
            f"Publishing is paused: {format_size(self.free)} are free on the broker's disk; {self._rule} "
            f"To resume, {self.remedy}.",
            log_message="publishing is paused by --disk-free-min",
        )

    @property
    def _rule(self) -> str:
        least, resumes = format_size(self.min_free), format_size(self.resumes_at)
        return f"the limit is {least} (--disk-free-min, BROKER_DISK_FREE_MIN), and publishing resumes at {resumes}."


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of the broker's tables with their indexes, in bytes."""

    size: int
    max_size: int
    is_low: bool  # too little space is left

    @property
    def measured(self) -> str:
        """The measurement in words."""
        return f"the broker's tables take {format_size(self.size)}"

    @property
    def finding(self) -> str:
        """The same, with the limit."""
        most, resumes = format_size(self.max_size), format_size(int(self.max_size / RESUME_FACTOR))
        return (
            f"{self.measured}; the limit is {most} (--database-size-max, BROKER_DATABASE_SIZE_MAX), and publishing "
            f"resumes at {resumes}."
        )

    @property
    def remedy(self) -> str:
        """The ways in which an operator can end the condition."""
        return "have messages acknowledged, purge or delete what keeps them, or raise --database-size-max"

    def refusal(self) -> StorageLow:
        """The answer to a publish."""
        message = f"Publishing is paused: {self.finding} To resume, {self.remedy}."
        return StorageLow(message, log_message="publishing is paused by --database-size-max")


def is_disk_low(free: int, min_free: int, *, was_low: bool) -> bool:
    """Whether publishing pauses, or stays paused.  A limit of 0 never pauses it."""
    return free < min_free or (was_low and free < min_free * RESUME_FACTOR)


def are_tables_full(size: int, max_size: int, *, were_full: bool) -> bool:
    """Whether publishing pauses, or stays paused.  A limit of 0 never pauses it."""
    return bool(max_size) and (size > max_size or (were_full and size > max_size / RESUME_FACTOR))


def default_min_free(total: int) -> int:
    """The limit for a file system of `total` bytes: 1 GiB or 5 % of it, whichever is more, but at most a fifth."""
    return int(min(max(GIB, _SHARE_OF_DISK * total), _MOST_OF_DISK * total))


def parse_size(text: str) -> int:
    """The bytes of a size such as "500MB", "1.5GiB" or "0".  Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError
    size = round(float(found[1]) * factor)
    if size > _MAX_BYTES:
        raise ValueError
    return size


def format_size(size: int) -> str:
    """A size for people: "412 MB", "1.1 GB"; small ones, as of a limit whose unit was forgotten, are exact."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 10**6:.0f} MB" if size >= 10**6 or not size else f"{size:,} bytes" if size > 1 else "1 byte"
