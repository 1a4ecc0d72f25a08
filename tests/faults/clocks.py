"""Wall clocks of the brokers' own, which step: the processes read from a file how far theirs is off.

What the broker runs on are `time.time` and `datetime.now`: they are shifted in its processes and in no other
(faults/own_clock/sitecustomize.py); monotonic clocks are left alone, as a step of the machine's clock leaves them.
"""

import struct
from pathlib import Path

_SHIFTING = Path(__file__).parent / "own_clock"
_OFFSET = struct.Struct("d")


class Clocks:
    """One for each broker, in files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def environment(self, place: int) -> dict[str, str]:
        """What makes processes have the clock of the broker at `place`."""
        if not self._file(place).exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            self.set(place, 0.0)
        return {"PYTHONPATH": str(_SHIFTING), "SUITE_CLOCK": str(self._file(place))}

    def set(self, place: int, seconds: float) -> None:
        """From now on it is so far ahead of the machine's clock, or behind."""
        file = self._file(place)
        with file.open("r+b" if file.exists() else "wb") as opened:
            opened.write(_OFFSET.pack(seconds))

    def _file(self, place: int) -> Path:
        return self._directory / f"clock-{place}"
