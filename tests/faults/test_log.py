"""Which of a broker's log records count against it."""

from tests.faults.log import worries

_TIME = "2026-11-21 19:34:07,213 "
_START = [
    _TIME + "ERROR uvicorn.error Traceback (most recent call last):",
    '  File "app.py", line 301, in lifespan',
    "",
    "{}: The database cannot be reached or went away; try again.",
    "",
    _TIME + "ERROR uvicorn.error Application startup failed. Exiting.",
]


def test_a_worker_of_the_release_that_finds_no_database_at_its_start_is_no_worry() -> None:
    record = [line.format("broker.domain.errors.Unavailable") for line in _START]
    assert worries(record, of_release=True) == []
    assert len(worries(record)) == 2


def test_one_that_fails_for_another_reason_is() -> None:
    record = [line.format("builtins.KeyError") for line in _START]
    assert len(worries(record, of_release=True)) == 1


def test_so_is_any_other_error_with_its_traceback_as_one() -> None:
    error = [_TIME + "ERROR broker.front.rest a fault", "Traceback (most recent call last):", "KeyError: 1"]
    assert worries([_TIME + "WARNING broker.cli it ends", *error]) == ["\n".join(error)]
