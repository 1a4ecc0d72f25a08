"""`auto` is what a machine, or a container on it, has."""

import os
from pathlib import Path

import pytest

from broker.app.settings.kinds import WholeOrAuto, processors

_ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limit", "count"),
    [("max 100000", _ALL), ("100000 100000", 1), ("1000 100000", 1), ("99900000 100000", _ALL), ("nonsense", _ALL)],
)
def test_a_containers_limit_of_processors_is_seen(tmp_path: Path, limit: str, count: int) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(limit + "\n")
    assert processors(path) == count
    assert processors(tmp_path / "none") == _ALL


def test_auto_is_one_for_each_processor_and_a_number_is_a_number() -> None:
    kind = WholeOrAuto(1, 256)
    assert (kind.read("Auto"), kind.read("7"), kind.allowed) == (
        processors(),
        7,
        "a whole number from 1 to 256, or auto",
    )
    for nonsense in ("0", "257", "many", "auto 2"):
        with pytest.raises(ValueError, match=r"^$|auto"):
            kind.read(nonsense)
