"""A chart of one series, as lines of text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, floor, log10

from broker.client.words import age, size
from broker.model.durations import format_units

HEIGHT = 8  # lines
_NARROWEST = 16  # columns of the chart, without its scale
_BLOCKS, _ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " ..::||##"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one series, drawn as text.

    `amounts`: by the starts of periods of `period`; a period without one is 0.  `start` and `end`: the time that
    the chart shows.  The amounts of a gauge are its values; those of a counter are what was counted, which is shown
    as a rate.
    """

    amounts: Mapping[datetime, int]
    start: datetime
    end: datetime
    period: timedelta
    unit: str
    is_gauge: bool

    def lines(self, width: int, *, is_ascii: bool = False) -> Sequence[str]:
        """Returns the chart, its scales and a summary, at most `width` columns wide."""
        periods = max(ceil((self.end - self.start) / self.period), 1)
        labels_width = 9
        each = ceil(periods / max(width - labels_width - 2, _NARROWEST))  # periods of a column
        values = self._columns(ceil(periods / each), each)
        top = _round_up(max(values))
        edge, corner, line = ("|", "+", "-") if is_ascii else ("│", "└", "─")
        blocks = _ASCII_BLOCKS if is_ascii else _BLOCKS
        drawn = []
        for number in range(HEIGHT, 0, -1):
            label = self._in_unit(top * number / HEIGHT) if number in (HEIGHT, HEIGHT // 2) else ""
            row = "".join(blocks[_eighths(value / top * HEIGHT - number + 1, value)] for value in values)
            drawn.append(f"{label:>{labels_width}} {edge}{row}".rstrip())
        drawn.append(f"{'0':>{labels_width}} {corner}{line * len(values)}")
        drawn.append(" " * (labels_width + 2) + self._times(len(values)))
        column = f"A column is {format_units(self.period * each, most=2)}"
        return [*drawn, f"{column}; {self._summary(values, each)}."]

    def _columns(self, count: int, each: int) -> list[float]:
        """Returns the rate, or the highest value, of each column."""
        found = [0.0] * count
        for start, amount in self.amounts.items():
            number = (start - self.start) // (self.period * each)
            if 0 <= number < count:
                found[number] = max(found[number], amount) if self.is_gauge else found[number] + amount
        if self.is_gauge:
            return found
        seconds = (self.period * each).total_seconds()
        last = (self.end - self.start - self.period * each * (count - 1)).total_seconds()
        return [value / seconds for value in found[:-1]] + [found[-1] / max(min(last, seconds), 1.0)]

    def _summary(self, values: Sequence[float], each: int) -> str:
        highest = max(values)
        at = self.start + self.period * each * values.index(highest)
        said = f"highest {self._in_unit(highest)} at {_clock(at)}, last {self._in_unit(values[-1])}"
        if self.is_gauge:
            return said
        total = sum(self.amounts.values())
        return f"{said}, {size(total) if self.unit == 'By' else f'{total:,}'} in all"

    def _in_unit(self, value: float) -> str:
        match self.unit:
            case "s":
                return age(value)
            case "By":
                return size(value) + ("" if self.is_gauge else "/s")
        return short_number(value) + ("" if self.is_gauge else "/s")

    def _times(self, columns: int) -> str:
        """Returns the times at both ends of the chart, with their days if it is longer than one."""
        days = self.end - self.start > timedelta(days=1)
        first, last = (f"{moment:%m-%d %H:%M}" if days else _clock(moment) for moment in (self.start, self.end))
        return f"{first}{last + ' UTC':>{max(columns - len(first), len(last) + 5)}}"


def short_number(value: float) -> str:
    """Formats a number with three digits, and a letter for thousands: "1.2k"."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5 or unit == "G":
            break
        value /= 1000
    digits = f"{value:.0f}" if value >= 99.5 or value == int(value) else f"{value:.3g}"
    return f"{digits}{unit}"


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}"


def _round_up(value: float) -> float:
    """Returns the next number that has one digit, or one digit and zeros; also 10."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _eighths(height: float, value: float) -> int:
    """Returns how many eighths of a line are filled.  In the lowest line a value above 0 is never drawn as 0."""
    filled = min(max(round(height * 8), 0), 8)
    return 1 if value and not filled and 0 < height < 1 else filled
