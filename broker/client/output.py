"""How commands print: tables and colours on a terminal, plain text elsewhere, and JSON for programs."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from broker.client import terminal
from broker.client.table_layout import Column, Layout, lay_out
from broker.client.words import value_text

ENDLESS = 100_000  # columns of what is no terminal: a program cuts lines better than it joins them
_NARROWEST = 40

# A state, and what it looks like where there are colours.
_STYLES = {
    "ACTIVE": "green",
    "CAUGHT_UP": "green",
    "RECENT": "green",
    "CLOSED": "green",
    "ok": "green",
    "create": "green",
    "update": "yellow",
    "PAUSED": "yellow",
    "RETRYING": "yellow",
    "HALF_OPEN": "yellow",
    "warning": "yellow",
    "unknown": "yellow",
    "delete": "red",
    "error": "red",
    "RESOURCE_ERROR": "red",
    "DENIED": "red",
    "ENDPOINT_FAILING": "red",
    "FAILING": "red",
    "NO_CONSUMERS": "red",
    "BLOCKED_KEY": "red",
    "OPEN": "red",
    "EXHAUSTED": "red",
    "DEAD_LETTERED": "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The result of a command: `data` for programs, and one of the other fields for people.

    A column that is empty in all rows is left out.  The first column and `whole` ones, such as ids, are never
    folded or cut; of `cut` ones a terminal shows the beginning; the others are folded.  `minor` ones are left out
    first, in this order, where a terminal is too narrow for all (table_layout.py).
    """

    data: Any
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    whole: Sequence[str] = ()
    cut: Sequence[str] = ()
    minor: Sequence[str] = ()
    fields: Mapping[str, Any] | None = None
    line: str = ""
    lines: Sequence[str] = ()
    script: str = ""  # for another program: as it is
    nothing: str = ""  # is said in place of a table without rows


class Output:
    """Lays out what a command prints; terminal.py writes it."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = terminal.is_terminal()
        self.console = Console(
            width=max(_NARROWEST, terminal.columns()) if self.is_terminal else ENDLESS,
            force_terminal=self.is_terminal,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def show(self, shown: Shown) -> None:
        """Prints the whole result of a command."""
        if self.as_json:
            terminal.write_json(json.dumps(shown.data, indent=2, ensure_ascii=False))
        elif shown.script:
            terminal.write_script(shown.script)
        elif shown.line or shown.lines:
            for line in shown.lines or [shown.line]:
                terminal.write_line(line)
        elif shown.fields is not None:
            self._print(_fields(shown.fields))
        elif shown.rows:
            self._print_table(shown)
        elif shown.nothing:
            self.note(shown.nothing)

    def row(self, data: Any, text: str) -> None:
        """Prints a line of a stream at once.  A terminal shows as much of it as fits."""
        if self.as_json:
            terminal.write_json(json.dumps(data, ensure_ascii=False))
        else:
            line = Text(terminal.printable(text))
            if self.is_terminal:  # by columns, of which some characters take two
                line.truncate(self.console.width, overflow="ellipsis")
            terminal.write_line(line.plain)

    def styled(self, text: str, state: str) -> None:
        """Prints a line for people in the style of the state."""
        self._print(Text(terminal.printable(text), style=_STYLES.get(state, "")))

    def note(self, text: str) -> None:
        """Prints a note for people: on standard error, so that it does not mix with the result."""
        if self.as_json:
            return
        wraps = self.is_terminal and len(text) > self.console.width
        lines = textwrap.wrap(text, self.console.width, break_on_hyphens=False) if wraps else [text]
        for line in lines:
            terminal.write_line(line, error=True)

    def _print_table(self, shown: Shown) -> None:
        """Prints a table as wide as the terminal, or wider where its columns need that.

        A note names the columns that are left out.
        """
        width = self.console.width
        table, layout = _table(shown, width)
        self.console.width = max(width, layout.width)
        self._print(table)
        self.console.width = width
        if layout.left_out:
            columns = ", ".join(name.upper() for name in layout.left_out)
            self.note(f"Not shown on {width} columns: {columns}; --json has all.")

    def _print(self, what: Text | Table) -> None:
        for line in self.console.render_lines(what, pad=False):
            terminal.write_spans(self._spans(line))

    def _spans(self, line: Sequence[Segment]) -> Iterable[terminal.Span]:
        """Leaves out blanks at the end of a line."""
        whole = "".join(segment.text for segment in line)
        left = len(whole.rstrip())
        for text, style, _ in line:
            shown, left = text[:left], left - len(text[:left])
            if shown:
                yield terminal.Span(shown, self._style(style))

    def _style(self, style: Style | None) -> str:
        if style is None or self.console.color_system is None:
            return ""
        if self.console.no_color:
            style = style.without_color
        codes, _, _ = style.render("\0", color_system=ColorSystem.STANDARD).partition("\0")
        return codes.removeprefix("\x1b[").removesuffix("m")


def _table(shown: Shown, width: int) -> tuple[Table, Layout]:
    """The table for a terminal of that width."""
    used = {
        name: [cell(row[i]) for row in shown.rows]
        for i, name in enumerate(shown.columns)
        if any(row[i] for row in shown.rows)
    }
    whole = {shown.columns[0], *shown.whole} - {*shown.cut}
    columns = [
        Column(
            name,
            max(len(name), *(one.cell_len for one in cells)),
            "whole" if name in whole else "cut" if name in shown.cut else "folded",
        )
        for name, cells in used.items()
    ]
    layout = lay_out(columns, shown.minor, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        if column.name in layout.widths:
            table.add_column(
                column.name.upper(),
                overflow="ellipsis" if column.kind == "cut" else "fold",
                no_wrap=column.kind != "folded",
                width=layout.widths[column.name],
            )
    for row in zip(*(used[name] for name in layout.widths), strict=True):
        table.add_row(*row)
    return table, layout


def cell(text: str) -> Text:
    return Text(terminal.printable(text), style=_STYLES.get(text, ""))


def _fields(fields: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in flat(fields).items():
        table.add_row(terminal.printable(name), cell(value_text(value)))
    return table


def flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """`{"a.b": 1}` for `{"a": {"b": 1}}`; what is empty is left out of it."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{before}{name}.")
        elif value not in ({}, [], "", None):
            found[f"{before}{name}"] = value
    return found
