"""The process that worker processes are forked from.

It loads the modules of a worker once.  A worker, the first one as well as the successor of one that was killed,
then starts within milliseconds, and all workers share the memory of these modules.  `broker serve` starts the
template before it reads its options, because loading the modules takes longer than every other step of a start.

The template ends with the last of its workers.  If it is killed, the workers end too, and new ones are forked from
a new template.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context, resource_tracker

from broker.app.process_environment import take_service_variables, tidy_environment

CONTEXT = get_context("forkserver")


@contextmanager
def worker_template() -> Iterator[None]:
    """Start the template, and kill it at the end of the block, when its workers have ended."""
    tidy_environment()
    take_service_variables()
    start_template()
    try:
        yield
    finally:
        # While it is loading modules it would not notice that this process has ended.
        pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # noqa: SLF001  # no other way
        if pid is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def start_template() -> None:
    """Start the template unless it runs.  Raises OSError."""
    CONTEXT.set_forkserver_preload(["broker.cli.server.worker_modules"])
    resource_tracker.ensure_running()  # the first start would do it, and unblock SIGINT in passing
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit it (child_process.py)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
