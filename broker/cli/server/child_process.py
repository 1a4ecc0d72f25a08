"""Child processes of the broker's parent process, and the messages that they send to it."""

import signal
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.process import BaseProcess

from broker.core.context.storage import DiskSpace
from broker.net.tls.material import TlsMaterial

# "spawn": a fork would share this process's event loop and signal handlers with the child.
CONTEXT = get_context("spawn")

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_deaf(process: BaseProcess) -> None:
    """Start a child that does not hear Ctrl-C, from its first instruction on: that reaches the whole group, and the
    parent passes it on.

    A signal that unwinds the parent does so once the child has all that it needs to start: one that got only a part
    would complain.  Raises KeyboardInterrupt then.
    """
    resource_tracker.ensure_running()  # the first start would do it, and unblock SIGINT in passing
    received: list[int] = []
    unwinding = [each for each in _STOPPING if signal.getsignal(each) is signal.default_int_handler]
    for each in unwinding:  # not blocked, for the child would inherit that
        signal.signal(each, lambda number, _frame: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        for each in unwinding:
            signal.signal(each, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if received:
        signal.raise_signal(received[0])


@dataclass(frozen=True, slots=True)
class Serving:
    """A worker's word on its pipe: from now on it serves.  It needed so long to load its modules, and to start."""

    load_seconds: float
    start_seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker's word on its pipe: it cannot start, and ends.  `why` is one line for the operator."""

    why: str


@dataclass(frozen=True, slots=True)
class Renew:
    """The parent's word to a worker: new connections get this."""

    tls: TlsMaterial


@dataclass(frozen=True, slots=True)
class Disk:
    """The parent's word to a worker: the free space of the embedded PostgreSQL's disk."""

    space: DiskSpace


@dataclass(frozen=True, slots=True)
class Outage:
    """The parent's word to a worker: why the embedded PostgreSQL does not run; "": it does."""

    why: str
