"""What a broker logged that an operator would worry about."""

import re
from collections.abc import Iterable

_BEGIN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}Z? ")
_UNAVAILABLE = "broker.domain.errors.Unavailable: "


def worries(lines: Iterable[str], *, of_release: bool = False) -> list[str]:
    """Records that are errors or have a traceback.

    `of_release`: not those of a worker that found no database at its start, with which release 0.1.0 ends it; its
    parent starts it again.
    """
    found = [record for record in _records(lines) if _is_error(record)]
    return [record for record in found if not (of_release and _could_not_start(record))]


def _records(lines: Iterable[str]) -> list[str]:
    records: list[str] = []
    for line in lines:
        if _BEGIN.match(line) or not records:
            records.append(line)
        else:
            records[-1] += f"\n{line}"
    return records


def _is_error(record: str) -> bool:
    return "Traceback" in record or " ERROR " in record.partition("\n")[0]


def _could_not_start(record: str) -> bool:
    said = record.strip().splitlines()
    return " uvicorn.error " in said[0] and (
        said[0].endswith("Application startup failed. Exiting.") or said[-1].startswith(_UNAVAILABLE)
    )
