"""What a broker logged that an operator would worry about."""

import re
from collections.abc import Iterable

_BEGIN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}Z? ")


def worries(lines: Iterable[str]) -> list[str]:
    """Records that are errors or have a traceback."""
    return [record for record in _records(lines) if _is_error(record)]


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
