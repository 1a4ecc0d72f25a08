"""Which schemas of the database a broker can serve, by the names of their revisions.

`0001_baseline` is the first.  `0003_min_0001` is the third, and code that was written for the first still works
with it, because it only adds objects.  `0004_min_0003` removed what code before the third needs.
"""

import re

_NAME = re.compile(r"(\d{4})_(?:baseline|min_(\d{4}))")
_DEVELOPMENT = re.compile(r"\d{4}(?:_since_\d{4})?")
_NOTHING = (0, 0)


def is_behind(revision: str | None, known: str) -> bool:
    """Whether the database has an older schema than the code knows, or none."""
    return _read(revision)[0] < _read(known)[0]


def can_be_served(revision: str | None, known: str) -> bool:
    """Whether code that knows the schema `known` works on that of the database."""
    number, since = _read(revision)
    return since <= _read(known)[0] <= number


def takes_away(revision: str) -> bool:
    """Whether there is code that knows an earlier schema and does not work on this one."""
    return _read(revision)[1] > 1


def is_before_baseline(revision: str | None) -> bool:
    """Whether a build from before the first release made the schema: no migration leads on from there."""
    return revision is not None and _DEVELOPMENT.fullmatch(revision) is not None


def _read(revision: str | None) -> tuple[int, int]:
    """A schema's number, and that of the oldest whose code works on it.  A name of another kind is after all."""
    if revision is None:
        return _NOTHING
    match = _NAME.fullmatch(revision)
    if match is None:
        return (10_000, 10_000)
    return int(match[1]), int(match[2] or match[1])
