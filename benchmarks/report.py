"""Figures: one row per measure, as a table for people and as JSON for programs."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import psutil

_CPU = "processor µs a message"
_ALWAYS = ("measure", "unit", "ours")


@dataclass(slots=True, kw_only=True)
class Row:
    """One line of the table.

    `ours` and `emulator` are medians over the rounds, in `unit`.  `ratio` is ours : emulator, unless `note` says
    what else.  `mark` is the ratio to reach: at least, or at most where `lower_is_better`; None: no mark is set.
    `error` says which server failed and how; its figure is then missing.
    """

    measure: str
    unit: str
    ours: float | None = None
    emulator: float | None = None
    ratio: float | None = None
    mark: float | None = None
    lower_is_better: bool = False
    note: str = ""
    error: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    others: float | None = None  # processors busy with something else, in the worst round
    peers: dict[str, float] = field(default_factory=dict)  # medians of further systems, each in a column of its own
    cpu: dict[str, float] = field(default_factory=dict)  # of ours: processor time for a message, in µs, by program

    @property
    def verdict(self) -> str:
        """ "met" or "MISSED"; empty without a mark; "?" where there is a mark and no figure."""
        if self.mark is None:
            return ""
        if self.ratio is None:
            return "?"
        met = self.ratio <= self.mark if self.lower_is_better else self.ratio >= self.mark
        return "met" if met else "MISSED"


def table(rows: Sequence[Row]) -> str:
    """A Markdown table, aligned so that it can be read as it is; a column that would be empty is left out."""
    lines = [_cells(row) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row.peers))
    headings = ["measure", "unit", "ours", *names, "emulator", "ratio", "mark", "", _CPU, "others", "note"]
    headings = [name for name in headings if name in _ALWAYS or any(line.get(name) for line in lines)]
    cells = [headings, *([line.get(name, "") for name in headings] for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    drawn = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    return "\n".join([drawn[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *drawn[1:]])


def _cells(row: Row) -> dict[str, str]:
    note = "; ".join(part for part in (row.note, row.error and f"FAILED: {row.error}") if part)
    return {
        "measure": row.measure,
        "unit": row.unit,
        "ours": number(row.ours),
        **{name: number(figure) for name, figure in row.peers.items()},
        "emulator": number(row.emulator),
        "ratio": "" if row.ratio is None else f"{row.ratio:.2f}",
        "mark": "" if row.mark is None else f"{'≤' if row.lower_is_better else '≥'} {row.mark:g}",
        "": row.verdict,
        _CPU: ", ".join(f"{program} {number(used)}" for program, used in sorted(row.cpu.items())),
        "others": "" if row.others is None else f"{row.others:.1f}",
        "note": note.replace("|", "/").replace("\n", " "),
    }


def number(value: float | None) -> str:
    """Three digits or more: 0.512, 12.3, 114,211; empty for None."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def machine() -> dict[str, Any]:
    """Where and when: what a figure means nothing without."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("pubsub-broker", "psycopg", "uvicorn", "uvloop")},
    }


def as_json(rows: Sequence[Row], options: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured; `rounds` has each round's figure."""
    results = [asdict(row) | {"verdict": row.verdict} for row in rows]
    return {"machine": dict(where), "options": dict(options), "rows": results}
