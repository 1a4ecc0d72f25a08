"""Loads the modules of a worker; imported by the process that workers are forked from."""

import gc
import time

_began = time.monotonic()
gc.disable()  # loading makes no garbage, and searching for it takes a fifth of the time

from broker.cli.server.worker import run_worker  # noqa: E402

gc.freeze()  # the collector has nothing to find in the modules, and would copy memory that workers share
gc.enable()
LOAD_SECONDS = time.monotonic() - _began

__all__ = ["LOAD_SECONDS", "run_worker"]
