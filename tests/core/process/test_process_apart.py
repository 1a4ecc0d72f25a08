"""A process beside the broker: how it ended is known, for that says who is to blame."""

import signal

import pytest

from broker.core.process.process_apart import Died, ProcessApart


async def test_how_a_process_ended_is_known_though_its_pipe_ends_before() -> None:
    """A sandbox that its bound of time ended was taken, one time in some dozens, for one that somebody killed."""
    process = ProcessApart("tests.core.process.ends_slowly", what="ends slowly", seconds=60)
    with pytest.raises(Died) as death:
        await process.ask(b"anything")
    assert death.value.code == -signal.SIGPROF
    assert not process.runs
