"""Which of a broker's log records count against it."""

from tests.faults.log import worries

_TIME = "2026-11-21 19:34:07,213 "


def test_so_is_any_other_error_with_its_traceback_as_one() -> None:
    error = [_TIME + "ERROR broker.api.rest a fault", "Traceback (most recent call last):", "KeyError: 1"]
    assert worries([_TIME + "WARNING broker.cli it ends", *error]) == ["\n".join(error)]
