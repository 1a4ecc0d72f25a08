"""Starting the broker's child processes."""

import os
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection
from typing import Any

import pytest

from broker.cli.server.child_process import CONTEXT, start_deaf


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def unwinding(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that unwinds this process, as it does `broker serve` while it starts."""
    number: signal.Signals = request.param
    before = signal.signal(number, signal.default_int_handler)
    yield number
    signal.signal(number, before)


def test_a_signal_waits_until_the_child_has_all_that_it_needs_to_start(
    unwinding: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource_tracker.ensure_running()  # is not the child
    spawn = util.spawnv_passfds

    def spawn_and_signal(*arguments: Any) -> int:
        number: int = spawn(*arguments)
        os.kill(os.getpid(), unwinding)
        return number

    monkeypatch.setattr(util, "spawnv_passfds", spawn_and_signal)
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_answer, args=(theirs,))
    with pytest.raises(KeyboardInterrupt):
        start_deaf(process)
    theirs.close()
    with ours:
        assert ours.recv() == "started"
    process.join()
    assert process.exitcode == 0
    assert signal.getsignal(unwinding) is signal.default_int_handler


def _answer(pipe: Connection) -> None:
    pipe.send("started")
